package dispatch

import "github.com/penstock/penstock/proxy/health"

var _ health.Witness = (*Endpoint)(nil)

// Passed implements [health.Witness]. That a check has connected says nothing of clients whose
// handshakes fail, nor does one that handshakes itself, for it verifies no certificate.
func (e *Endpoint) Passed(began int64, by *health.CheckConfig) {
	if !by.Elsewhere {
		if !e.handshakesFail() {
			e.reached(began, began)
		}
		e.passed(began)
		if m := e.judge.Load(); m != nil && by.Answered {
			m.Answered(began)
		}
	}
	if b := e.breaker.Load(); b != nil {
		b.Passed(began)
	}
	if b := e.up.breaker.Load(); b != nil {
		b.Passed(began)
	}
}

// SetBarred implements [health.Witness].
func (e *Endpoint) SetBarred(barred bool) {
	e.Endpoint.SetBarred(barred)
	if !barred {
		e.up.held.next()
	}
}

// better tells the upstream's breaker that there is more of the endpoint than there was.
func (e *Endpoint) better(what string) {
	if b := e.up.breaker.Load(); b != nil {
		b.Better(what)
	}
}

// turned notes the state of the endpoint's own breaker. Calls do not overlap.
func (e *Endpoint) turned(s health.State) {
	if was := health.State(e.circuit.Swap(uint32(s))); was != s && s != health.Open {
		e.better("the breaker of an endpoint is " + s.String())
	}
}
