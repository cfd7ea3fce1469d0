package dispatch

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/health"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/upstream"
)

// An Endpoint is a server of an upstream: somewhere to connect to, and what is known of
// it. It is safe for concurrent use.
type Endpoint struct {
	*balance.Endpoint
	Address socket.Address
	up      *Upstream
	name    string
	host    string // to be resolved, if fixed is empty
	port    uint16
	fixed   []loop.Address
	self    bool        // a connect may connect a socket to itself
	gone    atomic.Bool // its upstream does not know it any more

	judge   atomic.Pointer[health.Member]  // nil: outliers are not looked for
	breaker atomic.Pointer[health.Breaker] // nil: there is none
	check   atomic.Pointer[health.Check]   // nil: it is not checked

	total, failures atomic.Int64
	meter           meter
	circuit         atomic.Uint32 // the health.State that the breaker has told last
	bad             atomic.Int32  // verdicts against it, see SetHealthy and SetEjected
	fell            atomic.Int64  // how often the first one was passed
	sample          sample
	answers         health.Answers
	trials          trials
	last            atomic.Pointer[lastFailure] // nil: there was none
	failed          atomic.Bool                 // and it is not over
	unserved        inRow
}

// newEndpoint makes an endpoint of an address, which has been parsed.
func newEndpoint(up *Upstream, name string, addr socket.Address, cfg balance.EndpointConfig) (*Endpoint, error) {
	e := &Endpoint{Address: addr, up: up, name: name}
	cfg.Of = e
	e.Endpoint = balance.NewEndpoint(cfg)
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
	e.self = upstream.EphemeralPort(e.port)
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

// Upstream returns whose endpoint it is.
func (e *Endpoint) Upstream() *Upstream { return e.up }

// Name returns the endpoint's name: its address unless the configuration gives it one.
func (e *Endpoint) Name() string { return e.name }

// Host returns the host of its address: a name or an IP address; "" for a unix socket.
func (e *Endpoint) Host() string { return e.host }

// Total returns how many sessions it has had.
func (e *Endpoint) Total() int64 { return e.total.Load() }

// Failures returns how many connections to it failed, or ended before it had said
// anything.
func (e *Endpoint) Failures() int64 { return e.failures.Load() }

// SetJudge has what its connections come to told to somebody, nil for nobody. Reports
// that are under way go to the former one.
func (e *Endpoint) SetJudge(m *health.Member) {
	if m != nil {
		m.SetDown(e.State().Down)
	}
	e.judge.Store(m)
}

// SetBreaker has a breaker asked before it is connected to, nil for none. What the former
// one has let through is told to that.
func (e *Endpoint) SetBreaker(b *health.Breaker) {
	if b != nil {
		b.SetDown(e.State().Down)
	}
	e.breaker.Store(b)
}

// SetCheck has a check hurry when it cannot be connected to, nil for none.
func (e *Endpoint) SetCheck(c *health.Check) { e.check.Store(c) }

// SetHealthy implements [health.Target]. One that is back is not kept away any longer for
// what it did before. What other verdicts do to one that is down is no news.
func (e *Endpoint) SetHealthy(healthy bool) {
	defer e.mute(!healthy)
	if !healthy { // clients find out whether it can be connected to, one after the other
		e.SetFailing(true)
	}
	e.Endpoint.SetHealthy(healthy)
	e.turn(!healthy)
	e.up.look()
	if !healthy || e.gone.Load() { // that it is checked no more is no recovery
		return
	}
	e.up.unserved.Store(0)
	if m := e.judge.Load(); m != nil {
		m.Well()
	}
	for _, b := range []*health.Breaker{e.breaker.Load(), e.up.breaker.Load()} {
		if b != nil {
			b.Well()
		}
	}
	if b := e.breaker.Load(); b != nil {
		b.Forget()
	}
}

// mute has verdicts on the endpoint, beside its checks', not be told.
func (e *Endpoint) mute(down bool) {
	if m := e.judge.Load(); m != nil {
		m.SetDown(down)
	}
	if b := e.breaker.Load(); b != nil {
		b.SetDown(down)
	}
}

// SetEjected implements [health.Target].
func (e *Endpoint) SetEjected(ejected bool) {
	e.Endpoint.SetEjected(ejected)
	e.turn(ejected)
	e.up.look()
	if !ejected && !e.gone.Load() {
		e.better("an endpoint has returned")
	}
}

// SetCircuit implements [health.Target]. Who begins a trial asks the breaker itself.
func (e *Endpoint) SetCircuit(s health.State, trials int) {
	e.SetBroken(s == health.Open || s == health.HalfOpen && trials == 0)
	e.up.look()
	e.turned(s)
}

// Fell returns how often it was found to be unwell after it had been well.
func (e *Endpoint) Fell() int64 { return e.fell.Load() }

// turn counts a verdict, and tells of the first one against the endpoint.
func (e *Endpoint) turn(bad bool) {
	if !bad {
		e.bad.Add(-1)
		return
	}
	e.trials.revived.Store(false)
	if e.bad.Add(1) == 1 {
		e.fell.Add(1)
		if down := e.up.down; down != nil {
			down(e)
		}
	}
}

// report tells those who judge what a connection came to, from one of the sample or from
// Anybody.
func (e *Endpoint) report(permit health.Permit, from health.Source, o health.Outcome, now int64) {
	if o.Failed() {
		e.fail()
	}
	if m := e.judge.Load(); m != nil {
		m.ReportFrom(from, o, now)
	}
	if b := e.breaker.Load(); b != nil {
		b.ReportFrom(permit, from, o, now)
	}
}

// fail counts a failure.
func (e *Endpoint) fail() {
	e.failures.Add(1)
	e.up.failures.Add(1)
}

// hurry has the endpoint checked, after a client could not connect to it.
func (e *Endpoint) hurry(now int64) {
	if c := e.check.Load(); c != nil {
		c.Hurry(now)
	}
}

// because tells those who judge why the endpoint cannot be connected to, if that is what is
// reported next.
func (e *Endpoint) because(cause string) {
	if m := e.judge.Load(); m != nil {
		m.Because(cause)
	}
	if b := e.breaker.Load(); b != nil {
		b.Because(cause)
	}
}
