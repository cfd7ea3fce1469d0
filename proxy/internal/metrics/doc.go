// Package metrics writes the counters of a process as OpenMetrics or as Prometheus's text. It reads a
// [Sample], which the process fills in, once for each scrape.
//
// A few hundred series of the process pass a registry of client_golang, which also negotiates the format. Those
// of listeners, upstreams and endpoints may be hundreds of thousands, and the registry takes microseconds for
// each: an encoder writes them, and a test holds its output against client_golang's.
package metrics

import (
	"slices"
	"sync"

	"github.com/penstock/penstock/proxy/admin"
)

// A Kind is the type of a family.
type Kind string

// The types.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// A Family is the series of one name.
type Family struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string // one line, with the meaning of labels that need one
}

// A table is the families of each kind of object.
type table struct {
	process   []processFamily
	loops     []objectFamily[Loop]
	listeners []objectFamily[Listener]
	upstreams []objectFamily[Upstream]
	endpoints []objectFamily[Endpoint]
}

// families returns the table: the families of the status's fields, and then the others.
var families = sync.OnceValue(func() *table {
	return &table{
		process:   describedProcess(),
		loops:     append(statusFamilies(func(l *Loop) *admin.Loop { return &l.Loop }, "penstock_loop_", "loop"), loopFamilies...),
		listeners: append(statusFamilies(func(l *Listener) *admin.Listener { return &l.Listener }, "penstock_listener_", "listener"), listenerFamilies...),
		upstreams: append(statusFamilies(func(u *Upstream) *admin.Upstream { return &u.Upstream }, "penstock_upstream_", "upstream"), upstreamFamilies...),
		endpoints: append(statusFamilies(func(p *Endpoint) *admin.Endpoint { return &p.Endpoint }, "penstock_endpoint_", "upstream", "endpoint"), endpointFamilies...),
	}
})

// Families returns all families of this package, as documented. Those of the Go runtime and of the
// process (go_ and process_) are client_golang's.
func Families() (list []Family) {
	t := families()
	for i := range t.process {
		list = append(list, t.process[i].Family)
	}
	return append(append(list, slices.Concat(ofEach(t.loops), ofEach(t.listeners), ofEach(t.upstreams), ofEach(t.endpoints))...), droppedFamily)
}

func ofEach[T any](families []objectFamily[T]) (list []Family) {
	for i := range families {
		list = append(list, families[i].Family)
	}
	return list
}

func counter(name, help string, labels ...string) Family { return Family{name, Counter, labels, help} }

func gauge(name, help string, labels ...string) Family { return Family{name, Gauge, labels, help} }

func histogram(name, help string, labels ...string) Family {
	return Family{name, Histogram, labels, help}
}
