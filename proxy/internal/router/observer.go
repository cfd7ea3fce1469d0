package router

import "github.com/penstock/penstock/proxy/internal/health"

var _ health.ProbeObserver = (*Endpoint)(nil)

// Passed implements [health.ProbeObserver]. A check that has connected proves nothing for
// clients whose handshakes fail; nor does one with a handshake of its own, for it verifies no
// certificate.
func (e *Endpoint) Passed(began int64, check *health.CheckConfig) {
	if !check.Elsewhere {
		if !e.handshakesFail() {
			e.noteConnected(began, began)
		}
		e.passed(began)
		if m := e.monitor.Load(); m != nil && check.Answered {
			m.Answered(began)
		}
	}
	if b := e.breaker.Load(); b != nil {
		b.ProbeSucceeded(began)
	}
	if b := e.upstream.breaker.Load(); b != nil {
		b.ProbeSucceeded(began)
	}
}

// Unreached implements [health.ProbeObserver].
func (e *Endpoint) Unreached(check *health.CheckConfig) {
	if m := e.monitor.Load(); m != nil && !check.Elsewhere {
		m.Unreached()
	}
}

// SetBarred implements [health.ProbeObserver].
func (e *Endpoint) SetBarred(barred bool) {
	e.Endpoint.SetBarred(barred)
	if !barred {
		e.upstream.held.next()
	}
}

// improved reports to the upstream's breaker that the endpoint has got better.
func (e *Endpoint) improved(what string) {
	if b := e.upstream.breaker.Load(); b != nil {
		b.Improved(what)
	}
}

// circuitChanged notes the state of the endpoint's own breaker. Calls do not overlap.
func (e *Endpoint) circuitChanged(s health.State) {
	if was := health.State(e.circuitState.Swap(uint32(s))); was != s && s != health.Open {
		e.improved("the breaker of an endpoint is " + s.String())
	}
}
