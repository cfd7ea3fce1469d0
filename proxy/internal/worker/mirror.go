package worker

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

// A Mirrorer is a [Search] whose sessions may have a mirror.
type Mirrorer interface {
	// Mirror is asked when the session begins, after [Search.Reached] and before Close. It
	// returns nil if the session has no mirror.
	Mirror(now int64) *Mirror
}

// A Mirror is the endpoint of another upstream that gets the bytes that one client sends, too.
// It is not changed once it was returned.
type Mirror struct {
	// Binding is the endpoint, for [Group.CutMatching]. It is notified of no session.
	Binding Binding
	// Addresses are those to connect to, in order; none: Host is looked up by Resolver.
	Addresses []loop.Address
	Host      string
	Port      uint16
	Resolver  Resolver
	// MaybeSelf: a connection may have the same socket at both ends, which is reset then.
	MaybeSelf bool
	// Source is the local address to connect from, if valid; Timeout bounds the look-up and each
	// connect, 0: as the kernel does.
	Source  netip.Addr
	Timeout time.Duration
	// Congestion is the congestion control of the socket; nil: that of the system.
	Congestion *sockopt.Congestion
	// Header is sent before the client's bytes.
	Header []byte
	// Patience is how long bytes may wait, see [relay.Driver.StartMirror].
	Patience time.Duration
	// Compare is how the endpoint's answers are compared with those that the client gets; nil: they
	// are thrown away.
	Compare *Comparison
	// Counts gets the result.
	Counts *MirrorCounts
	// Ended is called once, at the end, on the loop's goroutine. It must not wait.
	Ended func()
}

// Reasons beside those of [relay.MirrorReason] for which a session is not mirrored, or not any more.
const (
	MirrorNoEndpoint  = "no_endpoint" // none of the upstream is usable
	MirrorFull        = "full"        // every usable one is at its limit
	MirrorDescriptors = "descriptors" // they are short
	MirrorOffLoop     = "off_loop"    // the session runs on goroutines
)

// A mirroring is a mirror of a session of a worker.
type mirroring struct {
	relay.Mirror
	loop.Dial
	comparing  comparing
	of         *Mirror
	worker     *worker
	serving    *serving
	cfg        loop.DialConfig
	addresses  []loop.Address
	at         int                // of those, the one that is connected to
	lookup     context.CancelFunc // nil: no name is looked up
	short      bool               // it has to give its descriptors up
	over       bool
	counted    relay.MirrorResult // that of.Counts has
	next, prev *mirroring         // of the worker's
}

// A mirrors is a worker's mirrors, of sessions that run and of those that have just ended.
type mirrors struct {
	ring   mirroring
	number int
	census loop.Timer // armed while there are any
	meter  *compare.Meter
}

func (t *mirrors) init() {
	t.ring.next, t.ring.prev = &t.ring, &t.ring
	t.meter = compare.NewMeter()
}

func (t *mirrors) add(m *mirroring) {
	m.prev, m.next = t.ring.prev, &t.ring
	m.prev.next, m.next.prev = m, m
	t.number++
}

func (t *mirrors) remove(m *mirroring) {
	m.next.prev, m.prev.next = m.prev, m.next
	t.number--
}

// mirror begins the mirror of a session that begins, nil if it has none. moved is the bytes that the
// endpoint has got already.
func (w *worker) mirror(by Mirrorer, s *serving, moved []byte) *mirroring {
	of := by.Mirror(w.loop.Now())
	if of == nil {
		return nil
	}
	if w.short() {
		of.Counts.Skip(MirrorDescriptors)
		of.Ended()
		return nil
	}
	m := &mirroring{of: of, worker: w, serving: s, addresses: of.Addresses}
	m.cfg = loop.DialConfig{Timeout: of.Timeout, Source: of.Source, Control: m.control}
	of.Counts.running.Add(1)
	w.mirrors.add(m)
	if !w.mirrors.census.Armed() {
		w.loop.Arm(&w.mirrors.census, (*censusTimer)(w), mirrorCensus)
	}
	w.driver.StartMirror(&m.Mirror, of.Patience, m)
	m.compare()
	m.Write(of.Header)
	m.comparing.moved(moved)
	m.Write(moved)
	return m
}

// relay is the mirror for the session's socket.
func (m *mirroring) relay() *relay.Mirror {
	if m == nil {
		return nil
	}
	return &m.Mirror
}

// reach begins to look for the endpoint, once the session has moved its first bytes.
func (m *mirroring) reach() {
	switch {
	case m == nil, m.over:
	case len(m.addresses) == 0:
		m.resolve()
	default:
		m.connect()
	}
}

// short reports whether there is a want of descriptors.
func (w *worker) short() bool {
	g := w.group
	return g.gate.holds.Load() > 0 || g.paused.Load() > 0
}

// control is called with the socket to the mirror's endpoint. Descriptors that are reserved for
// clients are open, so that the last socket that there can be is not a mirror's.
func (m *mirroring) control(fd int, _ string) error {
	if f := m.worker.group.control; f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	m.of.Congestion.Set(fd)
	return m.serving.service.Options.First(fd)
}

func (m *mirroring) connect() {
	m.worker.loop.Connect(&m.Dial, whichEndpoint, m.addresses[m.at], &m.cfg, m)
}

// Connected implements [loop.Connector].
func (m *mirroring) Connected(_ *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	if err == nil && m.of.MaybeSelf && toItself(fd, m.addresses[m.at]) {
		m.worker.loop.Drop(id)
		_ = sys.AbortOnClose(fd)
		closeSocket(fd)
		err = sockopt.ErrSelfConnect
	}
	switch {
	case err == nil:
		m.Mirror.Connected(relay.Socket{FD: fd, ID: id, Events: events, TCP: m.addresses[m.at].Path == ""})
	case LacksDescriptor(err):
		m.short = true
		m.Refused(err)
	case m.at+1 < len(m.addresses):
		m.at++
		m.connect()
	default:
		m.Refused(err)
	}
}

// resolve looks up the endpoint's name on a goroutine of its own.
func (m *mirroring) resolve() {
	ctx, cancel := context.WithCancel(context.Background())
	m.lookup = cancel
	of, w := m.of, m.worker
	w.group.lookups.Go(func() {
		ips, err := of.Resolver.Resolve(ctx, of.Host, of.Timeout)
		w.post(func() { m.resolved(ips, err) })
	})
}

func (m *mirroring) resolved(ips []netip.Addr, err error) {
	if m.over {
		return
	}
	m.stopLookup()
	for _, ip := range ips {
		m.addresses = append(m.addresses, loop.Address{AddrPort: netip.AddrPortFrom(ip.Unmap(), m.of.Port)})
	}
	switch {
	case err != nil:
		m.Refused(err)
	case len(m.addresses) == 0:
		m.Refused(errors.New("the name has no addresses"))
	default:
		m.connect()
	}
}

func (m *mirroring) stopLookup() {
	if m.lookup != nil {
		m.lookup()
		m.lookup = nil
	}
}

// MirrorEnded implements [relay.MirrorOwner].
func (m *mirroring) MirrorEnded(_ *relay.Mirror, res relay.MirrorResult) {
	m.over = true
	m.stopLookup()
	m.Cancel()
	m.worker.mirrors.remove(m)
	reason := res.Reason.String()
	if m.short || LacksDescriptor(res.Err) {
		reason = MirrorDescriptors
	}
	m.count(res)
	m.of.Counts.answer(&res)
	m.of.Counts.end(reason)
	m.of.Ended()
}

// cutMirrors ends the worker's mirrors.
func (w *worker) cutMirrors() {
	for m := w.mirrors.ring.next; m != &w.mirrors.ring; m = w.mirrors.ring.next {
		m.Cut()
	}
}

// shedMirrors ends mirrors for the want of descriptors, as many as one turn has time for, and
// reports whether there were any.
func (w *worker) shedMirrors() bool {
	any := w.mirrors.number > 0
	for began := time.Now(); w.mirrors.number > 0 && time.Since(began) < turnTime; {
		m := w.mirrors.ring.next
		m.short = true
		m.Cut()
	}
	return any
}

// shedMirrors has all workers give up mirrors for the want of descriptors.
func (g *Group) shedMirrors() {
	for _, w := range g.workers {
		w.post(func() { w.shedMirrors() })
	}
}

// cutMirrorsMatching ends the mirrors that match, some in each turn of their loop, and returns when it has looked at
// all, or the group has ended.
func (g *Group) cutMirrorsMatching(match Match) {
	if !g.started.Load() {
		return
	}
	over := make(chan struct{}, len(g.workers))
	for _, w := range g.workers {
		w.post(func() { w.cutSomeMirrors(match, w.mirrors.number, over) })
	}
	for range g.workers {
		select {
		case <-over:
		case <-g.ended:
			return
		}
	}
}

// cutSomeMirrors looks at so many of the worker's mirrors, of which those that were seen come last.
func (w *worker) cutSomeMirrors(match Match, left int, over chan<- struct{}) {
	for began := time.Now(); left > 0 && w.mirrors.number > 0; left-- {
		if time.Since(began) > turnTime {
			w.post(func() { w.cutSomeMirrors(match, left, over) })
			return
		}
		m := w.mirrors.ring.next
		if match(m.serving.socket, m.of.Binding) {
			m.Cut()
			continue
		}
		w.mirrors.remove(m)
		w.mirrors.add(m)
	}
	over <- struct{}{}
}
