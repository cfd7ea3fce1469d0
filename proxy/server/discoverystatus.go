package server

import (
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/discovery"
)

// discoveryStatus is how a source of endpoints is doing, for a status.
func discoveryStatus(of discovery.Status) *admin.Discovery {
	d := &admin.Discovery{
		Kind: of.Kind, From: of.From, Endpoints: of.Endpoints, Changed: of.Changed, Confirmed: of.Confirmed,
		Next: of.Next, Failures: of.Failures, Stale: of.Stale,
	}
	if of.Err != nil {
		d.Error = of.Err.Error()
	}
	return d
}
