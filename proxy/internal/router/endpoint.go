package router

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/sockopt"
)

// An Endpoint is a server of an upstream: an address, and its state. It is safe for concurrent
// use.
type Endpoint struct {
	*lb.Endpoint
	Address  sockopt.Address
	upstream *Upstream
	name     string
	host     string // to be resolved, if fixed is empty
	port     uint16
	fixed    []loop.Address
	self     bool        // a connect may connect a socket to itself
	gone     atomic.Bool // its upstream does not know it any more

	monitor atomic.Pointer[health.OutlierMonitor] // nil: outliers are not looked for
	breaker atomic.Pointer[health.Breaker]        // nil: there is none
	check   atomic.Pointer[health.Check]          // nil: it is not checked

	total, failures atomic.Int64
	meter           meter
	judged          judged
	tally           tally.Tally
	transitions     atomic.Int64  // of its checks' verdict
	ejections       atomic.Int64  // by outlier detection
	circuitState    atomic.Uint32 // the last health.State of the breaker
	bad             atomic.Int32  // verdicts against it, see SetHealthy and SetEjected
	downTransitions atomic.Int64  // how often the first one was passed
	sample          sample
	answers         health.Answers
	trials          trials
	lastFailure     atomic.Pointer[lastFailure] // nil: there was none
	failed          atomic.Bool                 // and it is not over
	unserved        streak
	connecting      slowConnects
	resortsUnserved atomic.Int64 // last resorts since it has served a client; see vain
}

// newEndpoint makes an endpoint of an address, which has been parsed.
func newEndpoint(up *Upstream, name string, addr sockopt.Address, cfg lb.EndpointConfig) (*Endpoint, error) {
	e := &Endpoint{Address: addr, upstream: up, name: name}
	cfg.Of = e
	e.Endpoint = lb.NewEndpoint(cfg)
	if addr.Network == "unix" {
		e.fixed = []loop.Address{{Path: addr.Name}}
		return e, nil
	}
	host, port, err := net.SplitHostPort(addr.Name)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", addr, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", addr, err)
	}
	e.host, e.port = host, uint16(n)
	e.self = ephemeralPort(e.port)
	if ip, err := netip.ParseAddr(host); err == nil {
		e.fixed = []loop.Address{{AddrPort: netip.AddrPortFrom(ip.Unmap(), e.port)}}
		e.self = e.self && (ip.IsLoopback() || ip.IsUnspecified() || isLocal(ip))
	}
	return e, nil
}

// isLocal reports whether an address is this machine's now.
func isLocal(ip netip.Addr) bool {
	addrs, _ := net.InterfaceAddrs() // without them loopback is known
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == ip.Unmap() {
			return true
		}
	}
	return false
}

// Upstream returns the upstream of the endpoint.
func (e *Endpoint) Upstream() *Upstream { return e.upstream }

// Name returns the endpoint's name: its address unless the configuration gives it one.
func (e *Endpoint) Name() string { return e.name }

// Total returns how many sessions it has had.
func (e *Endpoint) Total() int64 { return e.total.Load() }

// Failures returns how many connections to it failed, or ended before it had said
// anything.
func (e *Endpoint) Failures() int64 { return e.failures.Load() }

// SetMonitor sets the monitor of its connections, nil for none. Reports in progress go to the
// former one.
func (e *Endpoint) SetMonitor(m *health.OutlierMonitor) {
	if m != nil {
		m.SetDown(e.State().Down)
	}
	e.monitor.Store(m)
}

// SetBreaker sets the breaker of its connections, nil for none. Outcomes of connections that
// the former one has let through are reported to that.
func (e *Endpoint) SetBreaker(b *health.Breaker) {
	if b != nil {
		b.SetDown(e.State().Down)
	}
	e.breaker.Store(b)
}

// SetCheck has a check hurry when it fails a client, nil for none.
func (e *Endpoint) SetCheck(c *health.Check) { e.check.Store(c) }

// SetHealthy implements [health.Target]. An endpoint that is back is not avoided any longer
// for earlier failures. Other verdicts on one that is down are not reported.
func (e *Endpoint) SetHealthy(healthy bool) {
	defer e.mute(!healthy)
	if e.State().Down == healthy {
		e.transitions.Add(1)
	}
	if !healthy { // clients find out whether it can be connected to, one after the other
		e.SetFailing(true)
	}
	e.Endpoint.SetHealthy(healthy)
	e.setDown(!healthy)
	e.upstream.look()
	if !healthy || e.gone.Load() { // that it is checked no more is no recovery
		return
	}
	e.upstream.unserved.Store(0)
	if m := e.monitor.Load(); m != nil {
		m.Recovered()
	}
	for _, b := range []*health.Breaker{e.breaker.Load(), e.upstream.breaker.Load()} {
		if b != nil {
			b.Recovered()
		}
	}
	if b := e.breaker.Load(); b != nil {
		b.Forget()
	}
}

// mute stops reports of verdicts on the endpoint, beside its checks'.
func (e *Endpoint) mute(down bool) {
	if m := e.monitor.Load(); m != nil {
		m.SetDown(down)
	}
	if b := e.breaker.Load(); b != nil {
		b.SetDown(down)
	}
}

// SetEjected implements [health.Target].
func (e *Endpoint) SetEjected(ejected bool) {
	if ejected {
		e.ejections.Add(1)
	}
	e.Endpoint.SetEjected(ejected)
	e.setDown(ejected)
	e.upstream.look()
	if !ejected && !e.gone.Load() {
		e.improved("an endpoint has returned")
	}
}

// SetCircuit implements [health.Target]. A client that begins a trial asks the breaker itself.
func (e *Endpoint) SetCircuit(s health.State, trials int) {
	e.SetBroken(s == health.Open || s == health.HalfOpen && trials == 0)
	e.upstream.look()
	e.circuitChanged(s)
}

// DownTransitions returns how often it was found to be unwell after it had been well.
func (e *Endpoint) DownTransitions() int64 { return e.downTransitions.Load() }

// setDown counts a verdict, and reports the first one against the endpoint.
func (e *Endpoint) setDown(bad bool) {
	if !bad {
		e.bad.Add(-1)
		return
	}
	e.trials.revived.Store(false)
	if e.bad.Add(1) == 1 {
		e.downTransitions.Add(1)
		if down := e.upstream.down; down != nil {
			down(e)
		}
	}
}

// report reports the outcome of a connection to the monitors, from one of the sample or from
// [health.UnsampledSource].
func (e *Endpoint) report(permit health.Permit, from health.Source, o health.Outcome, now int64) {
	if o.Failed() {
		e.fail()
	}
	if m := e.monitor.Load(); m != nil {
		m.ReportFrom(from, o, now)
	}
	if b := e.breaker.Load(); b != nil {
		b.ReportFrom(permit, from, o, now)
	}
}

// fail counts a failure.
func (e *Endpoint) fail() {
	e.failures.Add(1)
	atomic.AddInt64(&e.upstream.counts.Failures, 1)
}

// checkSoon has the endpoint checked after it has failed a client: one whose process has ended
// cuts its sessions, and may be back before another client tries to connect.
func (e *Endpoint) checkSoon(now int64) {
	if c := e.check.Load(); c != nil {
		c.Hurry(now)
	}
}

// setCause passes to the monitors the reason that the endpoint cannot be connected to, if that
// is reported next.
func (e *Endpoint) setCause(cause string) {
	if m := e.monitor.Load(); m != nil {
		m.SetCause(cause)
	}
	if b := e.breaker.Load(); b != nil {
		b.SetCause(cause)
	}
}

// HostName returns the name of the endpoint's host, which is looked up; "": it has a fixed address.
func (e *Endpoint) HostName() string {
	if len(e.fixed) > 0 {
		return ""
	}
	return e.host
}
