// Package metrics writes the counters of a process as OpenMetrics or as Prometheus's text. It reads a
// [Sample], which the process fills in, once for each scrape.
//
// A few hundred series of the process pass a registry of client_golang, which also negotiates the format. Those
// of listeners, upstreams and endpoints may be hundreds of thousands, and the registry takes microseconds for
// each: an encoder writes them, and a test holds its output against client_golang's.
package metrics

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

// Families returns all families of this package, as documented. Those of the Go runtime and of the
// process (go_ and process_) are client_golang's.
func Families() (list []Family) {
	for i := range processFamilies {
		list = append(list, processFamilies[i].Family)
	}
	for i := range loopFamilies {
		list = append(list, loopFamilies[i].Family)
	}
	for i := range listenerFamilies {
		list = append(list, listenerFamilies[i].Family)
	}
	for i := range upstreamFamilies {
		list = append(list, upstreamFamilies[i].Family)
	}
	for i := range endpointFamilies {
		list = append(list, endpointFamilies[i].Family)
	}
	return append(list, droppedFamily)
}

func counter(name, help string, labels ...string) Family { return Family{name, Counter, labels, help} }

func gauge(name, help string, labels ...string) Family { return Family{name, Gauge, labels, help} }

func histogram(name, help string, labels ...string) Family {
	return Family{name, Histogram, labels, help}
}
