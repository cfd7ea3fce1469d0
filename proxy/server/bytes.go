package server

import (
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// bytesOf adds up, for a status, the bytes of ended sessions and of those that run.
func bytesOf(ended, running worker.Bytes) admin.Bytes {
	ended.Add(running)
	return admin.Bytes{
		ClientToEndpoint: admin.ByEngine(ended.ClientToEndpoint), EndpointToClient: admin.ByEngine(ended.EndpointToClient),
	}
}
