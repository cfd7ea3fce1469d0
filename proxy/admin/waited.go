package admin

import "time"

// Waited returns the time of the endpoint's sessions that have ended and have a verdict, and the part of it that was
// lost to the endpoint and the way to it, to a millisecond.
func (e *Endpoint) Waited() (lost, all time.Duration) {
	for kind, seconds := range e.Limited {
		d := time.Duration(1000*seconds) * time.Millisecond // rounded one by one: the sum does not depend on the order
		all += d
		if kind == "endpoint" || kind == "endpoint_network" {
			lost += d
		}
	}
	return lost, all
}
