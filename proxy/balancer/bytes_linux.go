package balancer

import (
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/core"
)

// bytesOf adds up, for a status, what sessions have moved that have ended, and what those
// have that run.
func bytesOf(ended, running core.Bytes) admin.Bytes {
	ended.Add(running)
	return admin.Bytes{
		ClientToEndpoint: admin.Moved(ended.ClientToEndpoint), EndpointToClient: admin.Moved(ended.EndpointToClient),
	}
}
