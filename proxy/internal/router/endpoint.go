package router

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// An Endpoint is a server of an upstream: an address, and its state. It is safe for concurrent
// use.
type Endpoint struct {
	*lb.Endpoint
	Address  sockopt.Address
	upstream *Upstream
	name     string
	host     string // looked up if fixed is empty
	port     uint16
	fixed    []loop.Address
	gone     atomic.Bool            // its upstream has forgotten it
	late     atomic.Pointer[func()] // called when a session begins although the endpoint is gone; may be nil

	monitor atomic.Pointer[health.OutlierMonitor] // nil: outliers are not looked for
	breaker atomic.Pointer[health.Breaker]        // nil: there is none
	check   atomic.Pointer[health.Check]          // nil: it is not checked

	counts tally.EndpointCounts // by atomic.AddInt64
	account
	circuitState    atomic.Uint32 // the last health.State of the breaker
	bad             atomic.Int32  // number of verdicts against it, see SetHealthy and SetEjected
	DownTransitions atomic.Int64  // how often it became unhealthy
	falls           atomic.Int64  // how often fell was called
	sample          sample
	answers         health.Answers
	trials          trials
	lastFailure     atomic.Pointer[Failure]  // nil: there was none
	failed          atomic.Bool              // the last failure is not over
	circular        atomic.Pointer[circular] // the last one; nil: there was none
	unserved        streak
	connecting      streak       // clients that have waited for a connection for a second or more: at least their first segment was not answered
	resortsUnserved atomic.Int64 // last resorts since it last served a client; see vain
}

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
	if ip, err := netip.ParseAddr(host); err == nil {
		e.fixed = []loop.Address{{AddrPort: netip.AddrPortFrom(ip.Unmap(), e.port)}}
	}
	return e, nil
}

// Upstream returns the upstream of the endpoint.
func (e *Endpoint) Upstream() *Upstream { return e.upstream }

// Name returns the endpoint's name: its address unless the configuration gives it one.
func (e *Endpoint) Name() string { return e.name }

// Counts returns the counts of the endpoint's events.
func (e *Endpoint) Counts() tally.EndpointCounts { return tally.Load(&e.counts) }

// SetMonitor sets the monitor of the endpoint's connections, nil for none. Reports in progress go to the former monitor.
func (e *Endpoint) SetMonitor(m *health.OutlierMonitor) {
	if m != nil {
		m.SetDown(e.State().Down)
	}
	e.monitor.Store(m)
}

// SetBreaker sets the breaker of the endpoint's connections, nil for none. Outcomes of connections that the previous
// breaker let through are still reported to the previous breaker.
func (e *Endpoint) SetBreaker(b *health.Breaker) {
	if b != nil {
		b.SetDown(e.State().Down)
	}
	e.breaker.Store(b)
}

// SetCheck sets the check that runs soon after the endpoint fails a client; nil: none.
func (e *Endpoint) SetCheck(c *health.Check) { e.check.Store(c) }

// SetHealthy implements [health.Target]. When an endpoint is up again, earlier failures no longer
// make clients avoid it. While it is down, other verdicts are not reported.
func (e *Endpoint) SetHealthy(healthy bool) {
	defer func() { // other verdicts are not reported while it is down
		if m := e.monitor.Load(); m != nil {
			m.SetDown(!healthy)
		}
		if b := e.breaker.Load(); b != nil {
			b.SetDown(!healthy)
		}
	}()
	if e.State().Down == healthy {
		atomic.AddInt64(&e.counts.Transitions, 1)
	}
	if !healthy { // clients find out one after the other whether it accepts connections
		e.SetFailing(true)
	}
	e.Endpoint.SetHealthy(healthy)
	e.setDown(!healthy)
	e.upstream.look()
	if !healthy || e.gone.Load() { // the end of its checks is no recovery
		return
	}
	e.upstream.unserved.Store(0)
	if m := e.monitor.Load(); m != nil {
		m.Recovered()
	}
	for _, b := range []*health.Breaker{e.breaker.Load(), e.upstream.breaker()} {
		if b != nil {
			b.Recovered()
		}
	}
	if b := e.breaker.Load(); b != nil {
		b.Forget()
	}
}

// SetEjected implements [health.Target].
func (e *Endpoint) SetEjected(ejected bool) {
	if ejected {
		atomic.AddInt64(&e.counts.Ejections, 1)
	}
	e.Endpoint.SetEjected(ejected)
	e.setDown(ejected)
	e.upstream.look()
	if !ejected && !e.gone.Load() {
		e.improved("an endpoint has returned")
	}
}

// Away implements [health.Target].
func (e *Endpoint) Away() bool {
	st := e.State()
	return st.Down || st.Draining || e.Weight() == 0
}

// SetCircuit implements [health.Target]. A client that begins a trial asks the breaker itself. Calls do not overlap.
func (e *Endpoint) SetCircuit(s health.State, trials int) {
	e.SetBroken(s == health.Open || s == health.HalfOpen && trials == 0)
	e.upstream.look()
	if was := health.State(e.circuitState.Swap(uint32(s))); was != s && s != health.Open && !e.gone.Load() {
		e.improved("the breaker of an endpoint is " + s.String())
	}
}

// setDown counts a verdict for or against the endpoint, and reports the first one against it.
func (e *Endpoint) setDown(bad bool) {
	if !bad {
		e.bad.Add(-1)
		return
	}
	e.trials.revived.Store(false)
	if e.bad.Add(1) == 1 {
		e.DownTransitions.Add(1)
		e.fell()
	}
}

// fell reports that sessions are not to go on at the endpoint. A client on its way to it reports it once more, in Reached.
func (e *Endpoint) fell() {
	e.falls.Add(1)
	e.upstream.fell(e)
}

// report reports the outcome of a connection to the monitors. from is a source of the sample or [health.UnsampledSource].
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

func (e *Endpoint) fail() {
	atomic.AddInt64(&e.counts.Failures, 1)
	atomic.AddInt64(&e.upstream.counts.Failures, 1)
}

// checkSoon makes the check of the endpoint run soon, after the endpoint has failed a client. If the endpoint's process has
// ended, its sessions are cut, and it may be back before another client tries to connect.
func (e *Endpoint) checkSoon(now int64) {
	if c := e.check.Load(); c != nil {
		c.Hurry(now)
	}
}

// setCause passes to the monitors why connections to the endpoint fail, for the report that may follow.
func (e *Endpoint) setCause(cause string) {
	if m := e.monitor.Load(); m != nil {
		m.SetCause(cause)
	}
	if b := e.breaker.Load(); b != nil {
		b.SetCause(cause)
	}
}

// HostName returns the name that is looked up for the endpoint, or "" if its address is fixed.
func (e *Endpoint) HostName() string {
	if len(e.fixed) > 0 {
		return ""
	}
	return e.host
}

var _ health.ProbeObserver = (*Endpoint)(nil)

// Passed implements [health.ProbeObserver]. A check proves nothing about failing handshakes of clients: it only connects,
// or its own handshake verifies no certificate.
func (e *Endpoint) Passed(began int64, check *health.CheckConfig) {
	if !check.Elsewhere {
		e.accepted(began, began)
		if m := e.monitor.Load(); m != nil && check.Answered {
			m.Answered(began)
		}
	}
	if b := e.breaker.Load(); b != nil {
		b.ProbeSucceeded(began)
	}
	if b := e.upstream.breaker(); b != nil {
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
	switch {
	case !barred:
		e.upstream.held.next()
	case e.bad.Load() > 0: // it has got last resorts since it became unhealthy
		e.fell()
	}
}

func (e *Endpoint) improved(what string) {
	if b := e.upstream.breaker(); b != nil {
		b.Improved(what)
	}
}

// A Failure is the last failure of an endpoint: a connection that could not be made, for any reason, or that ended without
// a byte from the endpoint. It is immutable.
type Failure struct {
	Outcome health.Outcome // Unknown: this machine could not connect
	At      int64          // clock
	cause   string
	// plain says that the connection itself failed by the endpoint's fault: then a check that connects shows that the
	// failure is over.
	plain bool
}

// Cause returns a line of bounded length without invisible characters.
func (f *Failure) Cause() string {
	text := f.Outcome.String()
	if f.Outcome == health.Unknown {
		text = "this machine cannot connect"
	}
	if f.cause != "" {
		text += ": " + f.cause
	}
	return text
}

// LastFailure returns the last failure, nil if there was none. over says that the endpoint has succeeded since: a
// connection was made, or a first byte came.
func (e *Endpoint) LastFailure() (f *Failure, over bool) {
	return e.lastFailure.Load(), !e.failed.Load()
}

// unreached notes that a connection could not be made.
func (e *Endpoint) unreached(o health.Outcome, err error, now int64) {
	last := &Failure{Outcome: o, At: now}
	if o == health.ConnectFailed || o == health.Unknown {
		last.cause = causeOf(err)
		last.plain = o == health.ConnectFailed && !errors.As(err, new(*tlsterm.Error)) && !errors.Is(err, postgres.ErrEndpoint)
	}
	e.note(last)
	if o.Failed() {
		e.upstream.Unreached.Add(int(unreachedBy(err)))
	}
}

// ended notes the outcome of a connection that had been made.
func (e *Endpoint) ended(o health.Outcome, now int64) {
	switch {
	case o.Failed():
		e.note(&Failure{Outcome: o, At: now})
		e.unserved.add(now)
		e.upstream.FailedSessions.Add(int(o))
		if e.unusable() {
			e.upstream.denied.Store(now)
		}
		e.checkSoon(now)
	case o == health.OK:
		e.spoke()
	}
}

func (e *Endpoint) note(last *Failure) {
	e.lastFailure.Store(last)
	e.failed.Store(true)
}

// spoke notes that the endpoint has sent something. This does not say that another connection can be made.
func (e *Endpoint) spoke() {
	e.resortServed()
	e.unserved.end()
	if e.failed.Load() && !e.lastFailure.Load().connecting() {
		e.failed.Store(false)
	}
}

// connected notes that a connection was made for a client.
func (e *Endpoint) connected(now int64) {
	if e.failed.Load() && e.lastFailure.Load().connecting() {
		e.failed.Store(false)
	}
	e.upstream.serves(now)
}

// accepted notes that a connection began at a time and was accepted: of a check, or of a client that the endpoint then
// turned down.
func (e *Endpoint) accepted(began, now int64) {
	if last := e.lastFailure.Load(); !e.failed.Load() || last == nil || last.Outcome != health.ConnectFailed || last.plain {
		e.noteConnected(began, now)
	}
	e.passed(began)
}

// passed notes that a connection that began at a time was made. If clients fail after the connect, such as in a
// handshake, this proves nothing.
func (e *Endpoint) passed(began int64) {
	last := e.lastFailure.Load()
	if last != nil && (!last.plain || last.At > began) {
		return
	}
	e.failed.Store(false)
	e.upstream.serves(began)
}

// A streak counts things in a row: sessions that ended without a byte from the endpoint and, as far as known, not because
// of the client; or clients that wait.
type streak struct {
	n, since, last atomic.Int64
}

func (s *streak) add(now int64) {
	if s.n.Add(1) == 1 {
		s.since.Store(now)
	}
	s.last.Store(now)
}

func (s *streak) end() {
	if s.n.Load() != 0 {
		s.n.Store(0)
	}
}

// UnservedStreak returns how many sessions in a row the endpoint has failed after the connect, and the times of the first
// and the last of them: it sent no byte in any of them, and has served no client since.
func (e *Endpoint) UnservedStreak() (n, since, last int64) {
	return e.unserved.n.Load(), e.unserved.since.Load(), e.unserved.last.Load()
}

func (f *Failure) connecting() bool {
	return f.Outcome == health.ConnectFailed || f.Outcome == health.Unknown
}

// A circular is why a connection to an endpoint led back to its upstream, and when.
type circular struct {
	err error
	at  int64 // clock
}

// circularTime is how long an endpoint with a path is not connected to again after that. The listener that it reached gets each
// connection, even if it is dropped at once, and would send it on.
const circularTime = time.Second

// circle returns why an address of an endpoint must not be used for a client, because it leads back to the endpoint's upstream.
// It is asked as [worker.Search] is: where a path leads is known only when the socket is connected. Without an
// endpoint the address is the client's original destination. c is nil for a mirror: its client was looked at before.
func (l *Listener) circle(c *worker.Client, e *Endpoint, at loop.Address, fd int, connected bool) error {
	ask := l.cfg.Circle
	switch {
	case ask == nil:
		return nil
	case e == nil:
		return ask(c, "", at, false, fd, connected)
	case at.Path != "" && !connected:
		if last := e.circular.Load(); last != nil && l.now()-last.at < int64(circularTime) {
			return last.err
		}
		return nil
	}
	err := ask(c, e.upstream.name, at, e.HostName() != "", fd, connected)
	if err != nil && at.Path != "" {
		e.circular.Store(&circular{err, l.now()})
	}
	return err
}
