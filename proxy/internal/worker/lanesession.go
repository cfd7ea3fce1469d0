package worker

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// A laneSession is a session that is prepared to leave user space, or has left. It is the relay's
// Carrier, and is used only once, because the lane may still have it after its end. Fields that
// change belong to the loop's goroutine.
type laneSession struct {
	session  lane.Session // must be first, see laneSessionOf
	conn     *conn
	parked   relay.Parked // in place of a relay.Driven, some time after it has left
	times    laneTimes
	passed   [2]uint16  // low bits of the bytes from either side at the last Group.Watch
	controls [2]control // the congestion controls of its sockets when it left
	back     uint8      // how often it was taken back; it wraps around
	flags[laneFacts]
}

type laneFacts uint8

const (
	goneOn   laneFacts = 1 << iota // it goes on without this process, for which it has ended
	coming                         // it is coming back, see [Group.ReturnLane]
	cameBack                       // it has come back; its new sockets need its place in the lane
	armed                          // the lane may take it
	hasLeft                        // times holds its time until it left
	queued                         // a later look decides whether it is a flow, see [laneGaps]
	shut                           // a gap is being made for it: its source sees a window of 0
	opened                         // the same, but its endpoints see windows again: the next packet takes it

	noGap laneFacts = 0
	gaps            = queued | shut | opened // at most one of them is set
)

// gap returns the state of a gap for the flow.
func (c *laneSession) gap() laneFacts { return c.facts & gaps }

func (c *laneSession) setGap(to laneFacts) { c.facts = c.facts&^gaps | to }

var _ driver.Carrier = (*laneSession)(nil)

// worker returns the worker of a session that has not ended. It belongs to the loop's goroutine.
func (c *laneSession) worker() *worker { return c.conn.worker() }

// onLoop calls f on the loop, unless the session ends before. Any goroutine may call it.
func (w *worker) onLoop(c *laneSession, f func()) {
	w.post(func() {
		if c.conn.lane == c {
			f()
		}
	})
}

// offer allows the lane to take the session from now on, and checks later whether its flow lacks a gap. If sessions may not
// leave any more it does nothing, because the session will be withdrawn.
func (c *laneSession) offer() {
	w := c.worker()
	if w.lanes.lane == nil {
		return
	}
	c.conn.driven().Offer(c)
	w.lanes.gaps.await(c)
}

func (c *laneSession) Arm() { c.set(armed, c.worker().lanes.lane != nil && c.session.Arm()) }

// Disarm implements [driver.Carrier]. A session that has failed to leave for a long time pauses
// its attempts. If a packet could not take it, the worker checks again whether it is a flow,
// because the flow may just have paused at the previous check.
func (c *laneSession) Disarm() bool {
	here := c.session.Disarm()
	c.set(armed, false)
	if !here {
		c.noteLeaving()
	} else if why := c.session.Refused(); why != lane.None && passing(why) {
		c.worker().lanes.gaps.await(c)
	}
	w := c.worker()
	if c.back++; here && !c.is(shut|opened) && c.back%laneTries == 0 && c.session.Tries() >= laneTries && w.milliseconds()-c.times.tried() >= w.lanes.trying() {
		w.onLoop(c, c.rest)
	}
	return here
}

func (w *worker) milliseconds() uint32 { return uint32(w.loop.Now() / int64(time.Millisecond)) }

// rest gives up for now; the session is asked again later.
func (c *laneSession) rest() {
	if c.worker().withdraw(c.conn) {
		c.worker().askLater(c.conn)
	}
}

func (c *laneSession) Leave(a, b int) {
	t := &c.worker().lanes
	c.controls = [2]control{t.controlOf(a), t.controlOf(b)}
	_ = c.session.Leave(a, b) // once, after Disarm
	t.park.later(c)
}

func (c *laneSession) Progress() (aToB, bToA int64, idle time.Duration) {
	if r := c.worker().lanes.results[c]; r != nil {
		return int64(r.Bytes[0]), int64(r.Bytes[1]), 0
	}
	bytes := c.session.Bytes()
	return int64(bytes[0]), int64(bytes[1]), c.session.Idle()
}

// Quiet implements [driver.Carrier]: all sent bytes are acknowledged, and the endpoint was the last to send, or has ended.
func (c *laneSession) Quiet() bool {
	v, ok := c.session.Look()
	return ok && v.Ends[0].Outstanding == 0 && v.Ends[1].Outstanding == 0 && (v.Ends[1].Last || v.EndedBy == 1)
}

// Reset implements [driver.Carrier]. A session that goes on without this process ends only here.
func (c *laneSession) Reset() {
	if c.is(goneOn) {
		c.worker().onLoop(c, func() { c.conn.driven().Finish(true, relay.SideNone) })
		return
	}
	c.session.Reset()
}

func (c *laneSession) Return() bool {
	if c.is(goneOn) {
		return false
	}
	c.goBack()
	return true
}

func (c *laneSession) away() bool { return c.conn.carried() && !c.is(coming) }

// laneEnded ends a session's part in the lane, and returns it; nil: the session had none.
func (w *worker) laneEnded(n *conn) *laneSession {
	c := n.lane
	if c != nil {
		n.lane = nil
		c.session.Release()
	}
	return c
}

// LeaveLane lets the sessions that have left user space continue without this process. For this
// process they end, with the cause in their results, and do not count as cut. No further session
// leaves. Call the lane's Leave after Close. LeaveLane returns their number when all have ended
// here. Any goroutine but the loops' may call it.
func (g *Group) LeaveLane(cause error) int64 {
	for _, w := range g.workers {
		w.post(func() { w.setLane(nil, 0) })
	}
	var left atomic.Int64
	g.scanClients(func(_ *worker, n *conn) {
		if c := n.lane; c != nil && c.away() { // the other sessions are in user space, or soon will be
			c.set(goneOn, true)
			left.Add(1)
			n.driven().Cut(cause)
		}
	})
	g.scanClients(func(*worker, *conn) {}) // after this scan the loops have ended the sessions of the first one
	return left.Load()
}

// laneAddresses returns the addresses of a session that has left: the client's, and both addresses of the connection to the
// endpoint. ok is false if the session has not left, or the addresses are unknown.
func (w *worker) laneAddresses(n *conn) (client, endpoint, local netip.AddrPort, ok bool) {
	c := n.lane
	if c == nil || !n.carried() {
		return client, endpoint, local, false
	}
	a, b, ok := c.session.Addresses()
	return a[0], b[0], b[1], ok
}

// A laneOwner is a worker in its role as the owner of its sessions in the lane. Goroutines of the lane call its methods,
// except for Tag, UserTimeout and KeepAlive, which Register calls on the loop.
type laneOwner worker

var (
	_ lane.Observer = (*laneOwner)(nil)
	_ lane.Bounded  = (*laneOwner)(nil)
	_ lane.Probed   = (*laneOwner)(nil)
	_ lane.Tagged   = (*laneOwner)(nil)
	_ lane.Returner = (*laneOwner)(nil)
)

// laneSessionOf returns the laneSession around a session of the lane. The session is its first field.
func laneSessionOf(s *lane.Session) *laneSession { return (*laneSession)(unsafe.Pointer(s)) }

var _ [0]struct{} = [unsafe.Offsetof(laneSession{}.session)]struct{}{}

// onLoop calls f on the loop, unless the session ends before.
func (o *laneOwner) onLoop(s *lane.Session, f func(c *laneSession)) {
	c := laneSessionOf(s)
	(*worker)(o).onLoop(c, func() { f(c) })
}

func (o *laneOwner) Ready(s *lane.Session) { o.onLoop(s, (*laneSession).offer) }

func (o *laneOwner) Left(s *lane.Session) {
	o.onLoop(s, func(c *laneSession) {
		if !c.conn.parked() {
			c.conn.session.Recall()
		}
	})
}

func (o *laneOwner) Ended(s *lane.Session, r lane.Result) {
	o.onLoop(s, func(c *laneSession) { c.ended(&r) })
}

func (c *laneSession) ended(r *lane.Result) {
	if !c.conn.carried() && c.conn.session.Withdraw() {
		c.endedHere(r)
		return
	}
	c.worker().lanes.results[c] = r
	if first := SideOf(r.View.OnlyEnd()); r.Reset && first != relay.SideNone {
		c.conn.driven().HalfEnded(first)
	}
	var dead *lane.TimedOut
	if errors.As(r.Err, &dead) {
		c.conn.driven().FinishError(SideOf(dead.By), syscall.ETIMEDOUT)
		return
	}
	if r.Err != nil { // the session could not come back
		c.conn.driven().Cut(r.Err)
	}
	c.conn.driven().Finish(r.Reset, SideOf(r.View.EndedBy))
}

// endedHere handles a session in user space that the lane reports as ended: it has just come back, and the lane ended it
// meanwhile, for example by a user timeout. Its new sockets do not know that, so it is cut.
func (c *laneSession) endedHere(r *lane.Result) {
	n := c.conn
	n.worker().laneEnded(n)
	if c.is(cameBack) {
		n.session.Cut(cmp.Or(r.Err, error(syscall.ECONNRESET)))
	}
}

func (o *laneOwner) HalfClosed(s *lane.Session, from int) {
	o.onLoop(s, func(c *laneSession) { c.conn.driven().HalfEnded(SideOf(from)) })
}

func (o *laneOwner) Return(s *lane.Session) { o.onLoop(s, (*laneSession).goBack) }

// goBack begins to take a session back, and does not wait for it. It does nothing if the session is coming already.
func (c *laneSession) goBack() {
	w := c.worker()
	g := w.group
	if !c.away() {
		return
	}
	c.set(coming, true)
	g.returns.Go(func() {
		select {
		case g.returning <- struct{}{}:
			_, _ = c.comeBack(w) // on an error the session is reset, and its result has the reason
			<-g.returning
		case <-g.ended:
		}
	})
}

// UserTimeout implements [lane.Bounded]. It is the value that the listener had when the client was accepted.
func (*laneOwner) UserTimeout(s *lane.Session) time.Duration {
	return userTimeoutOf(laneSessionOf(s).conn)
}

// KeepAlive implements [lane.Probed], likewise.
func (*laneOwner) KeepAlive(s *lane.Session) time.Duration {
	return laneSessionOf(s).conn.ref.serving.service.Options.SetKeepAlive()
}

// Tag implements [lane.Tagged]: it returns the session's [record.Image]. The image lacks the bytes moved, which are not
// known before the session has left.
func (*laneOwner) Tag(s *lane.Session) (tag [lane.TagSize]byte, begun time.Duration) {
	n, m := laneSessionOf(s).conn, new(record.Image)
	if k := n.ref.kept; k != nil {
		k.Unpack(&m.Record)
	} else {
		m.Source = n.worker().sources[n]
	}
	m.Listener, m.Timeouts = n.ref.serving.service.Name, record.TimeoutsOf(n.limits())
	setNames(&m.Record, n.binding())
	if now, err := sys.Monotonic(); err == nil { // on an error the session begins now
		begun = now - n.result().Duration
	}
	return m.Tag(), begun
}

// retag stores in the kernel how much the session has moved in user space. While the session may leave this is not known:
// then moved is empty.
func (c *laneSession) retag(moved *relay.Result) {
	tag, _ := c.session.Tag()
	if m, err := record.Decode(tag[:]); err == nil {
		m.Result = *moved
		c.session.Retag(m.Tag())
	}
}

// A control names a congestion control: its index in lanes.controls plus one; 0: unknown. Sessions that have left share the
// few names.
type control uint8

// controlOf returns the actual congestion control of a socket, not the configured one, because the kernel may have
// refused that, a route may have another one, and a reload leaves connections alone.
func (t *lanes) controlOf(fd int) control {
	name, err := sys.Congestion(fd)
	if err != nil {
		return 0
	}
	at := slices.Index(t.controls, name)
	if at < 0 {
		if len(t.controls) == math.MaxUint8 {
			return 0
		}
		at = len(t.controls)
		t.controls = append(t.controls, name)
	}
	return control(at + 1)
}

// setOptions sets the options of the former sockets on the new sockets of a session that has come back: the options set at
// accept and connect, and the late ones. The connections work without them too, so errors are ignored.
func (c *laneSession) setOptions(sockets [2]int) {
	options := c.conn.ref.serving.service.Options
	_ = sys.SetsockoptInt(sockets[1], sys.SOL_SOCKET, syscall.SO_REUSEADDR, 0) // set by the lane; the connecting socket never had it
	for i, fd := range sockets {
		_ = options.Set(fd)
		if at := c.controls[i]; at != 0 {
			_ = sys.SetCongestion(fd, c.worker().lanes.controls[at-1])
		}
	}
}

// userTimeoutOf returns the TCP_USER_TIMEOUT of a session's sockets; 0: the kernel's default.
func userTimeoutOf(n *conn) time.Duration {
	return n.ref.serving.service.Options.SetUserTimeout()
}

// laneTimes are the parts of a session's time until it left user space, by cause. Until it leaves, the first two hold
// tried.
type laneTimes [verdict.Kinds]span

// tried returns the time at which packets began to try to take a session, in milliseconds of the loop's clock.
func (t *laneTimes) tried() uint32 { return uint32(t[0])<<16 | uint32(t[1]) }

func triedAt(at uint32) laneTimes { return laneTimes{span(at >> 16), span(at)} }

func (c *laneSession) tries() {
	c.times = triedAt(c.worker().milliseconds())
	c.set(hasLeft, false)
}

// A span is a duration in milliseconds, exact to one part in two thousand: its 11 highest bits, and by how much they are
// shifted.
type span uint16

const spanBits = 11

func newSpan(t time.Duration) span {
	ms := min(uint64(max(t, 0)/time.Millisecond), 1<<(31+spanBits)-1) // more than a century
	shift := max(bits.Len64(ms)-spanBits, 0)
	return span(shift<<spanBits) | span(ms>>shift)
}

func (s span) time() time.Duration {
	return time.Duration(s&(1<<spanBits-1)) << (s >> spanBits) * time.Millisecond
}

// noteLeaving keeps the parts of a session's time until now. Its sockets still exist.
func (c *laneSession) noteLeaving() {
	s := c.conn.userSample()
	for k, t := range verdict.TimesOf(&s) {
		c.times[k] = newSpan(t)
	}
	c.set(hasLeft, true)
	r := c.conn.result()
	c.retag(&r)
}

// view returns the lane's observations of the session, also at its end. left says whether it has ever left user space.
func (c *laneSession) view() (v lane.View, left bool) {
	if r := c.worker().lanes.results[c]; r != nil {
		return r.View, r.Left
	}
	v, ok := c.session.Look()
	return v, ok && v.Time > 0
}

// addTo adds the session's time in the lane to a sample. carried says that the session ends there.
func (c *laneSession) addTo(s *verdict.Sample, carried bool) {
	v, left := c.view()
	if !left {
		return
	}
	var before verdict.Times
	if !carried || !c.is(hasLeft) { // the session is back
		s.Duration -= v.Time
		before = verdict.TimesOf(s)
	} else {
		for k, t := range c.times {
			before[k] = t.time()
		}
	}
	*s = verdict.OfLane(&v, before)
}

// turn returns the state of a session that has left: its endpoint has answered since the previous look if both sides
// have sent something that the other side has acknowledged. A continuing stream is not an answer. It is not known
// whether the client waits for an answer.
func (c *laneSession) turn() relay.Turn {
	t := relay.Turn{Last: relay.SideB, Quiet: c.session.Idle()}
	n := c.session.Bytes()
	now := [2]uint16{uint16(n[0]), uint16(n[1])}
	t.Answered = now[0] != c.passed[0] && now[1] != c.passed[1]
	c.passed = now
	return t
}

// userSample returns the known waits of a joined session in user space.
func (n *conn) userSample() verdict.Sample {
	r, legs := n.result(), n.legs()
	r.Legs = &legs
	return verdict.OfResult(&r, !n.ref.serving.socket.TCP, !n.tcp())
}

// sample returns the known waits of a joined session.
func (n *conn) sample() *verdict.Sample {
	s := n.userSample()
	if c := n.lane; c != nil {
		c.addTo(&s, n.carried())
	}
	return &s
}

// SideOf returns the side of the lane's endpoint 0 or 1, and relay.SideNone for any other number.
func SideOf(endpoint int) relay.Side {
	switch endpoint {
	case 0:
		return relay.SideA
	case 1:
		return relay.SideB
	}
	return relay.SideNone
}
