package worker

import (
	"cmp"
	"errors"
	"syscall"
	"time"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/relay"
)

// A laneOwner is a worker as the lane's owner of all its sessions there. Its methods are called by goroutines of the lane, but for Tag, UserTimeout and KeepAlive,
// which Register calls on the loop.
type laneOwner worker

var (
	_ lane.Observer = (*laneOwner)(nil)
	_ lane.Bounded  = (*laneOwner)(nil)
	_ lane.Probed   = (*laneOwner)(nil)
	_ lane.Tagged   = (*laneOwner)(nil)
	_ lane.Returner = (*laneOwner)(nil)
)

// laneSessionOf returns the laneSession that a session of the lane is the first field of, as each of a laneOwner's is.
func laneSessionOf(s *lane.Session) *laneSession { return (*laneSession)(unsafe.Pointer(s)) }

var _ [0]struct{} = [unsafe.Offsetof(laneSession{}.session)]struct{}{}

// onLoop calls f on the loop, unless the session has ended by then.
func (o *laneOwner) onLoop(s *lane.Session, f func(c *laneSession)) {
	c := laneSessionOf(s)
	(*worker)(o).onLoop(c, func() { f(c) })
}

// Ready implements [lane.Owner].
func (o *laneOwner) Ready(s *lane.Session) { o.onLoop(s, (*laneSession).offer) }

// Left implements [lane.Owner].
func (o *laneOwner) Left(s *lane.Session) {
	o.onLoop(s, func(c *laneSession) {
		if !c.conn.parked() {
			c.conn.session.Recall()
		}
	})
}

// Ended implements [lane.Owner].
func (o *laneOwner) Ended(s *lane.Session, r lane.Result) {
	o.onLoop(s, func(c *laneSession) { c.ended(&r) })
}

// ended is the end in the lane.
func (c *laneSession) ended(r *lane.Result) {
	if !c.conn.carried() && c.conn.session.Withdraw() {
		c.endedHere(r)
		return
	}
	c.worker().lanes.note(c, r)
	if first := SideOf(r.View.OnlyEnd()); r.Reset && first != relay.SideNone {
		c.conn.driven().HalfEnded(first)
	}
	var dead *lane.TimedOut
	if errors.As(r.Err, &dead) {
		c.conn.driven().FinishError(SideOf(dead.By), syscall.ETIMEDOUT)
		return
	}
	if r.Err != nil { // it could not come back
		c.conn.driven().Cut(r.Err)
	}
	c.conn.driven().Finish(r.Reset, SideOf(r.View.EndedBy))
}

// endedHere is the end in the lane of a session that is in user space: one that has just come back was ended meanwhile, as
// by a user timeout, and its sockets go on as if it had not been.
func (c *laneSession) endedHere(r *lane.Result) {
	n := c.conn
	n.worker().laneEnded(n)
	if c.is(cameBack) {
		n.session.Cut(cmp.Or(r.Err, error(syscall.ECONNRESET)))
	}
}

// HalfClosed implements [lane.Observer].
func (o *laneOwner) HalfClosed(s *lane.Session, from int) {
	o.onLoop(s, func(c *laneSession) { c.conn.driven().HalfEnded(SideOf(from)) })
}

// Return implements [lane.Returner].
func (o *laneOwner) Return(s *lane.Session) { o.onLoop(s, (*laneSession).goBack) }

// goBack has a session come back without waiting for that, unless it does so already.
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
			_, _ = c.comeBack(w) // one that cannot is reset, and its result has the reason
			<-g.returning
		case <-g.ended:
		}
	})
}

// UserTimeout implements [lane.Bounded]: that of the session's listener when it was accepted.
func (*laneOwner) UserTimeout(s *lane.Session) time.Duration {
	return userTimeoutOf(laneSessionOf(s).conn)
}

// KeepAlive implements [lane.Probed], in the same way.
func (*laneOwner) KeepAlive(s *lane.Session) time.Duration {
	return laneSessionOf(s).conn.ref.serving.service.Options.SetKeepAlive()
}

// Tag implements [lane.Tagged].
func (*laneOwner) Tag(s *lane.Session) (tag [16]byte, begun time.Duration) {
	n := laneSessionOf(s).conn
	t := LaneTag{Listener: LaneHash(n.ref.serving.socket.Name)}
	if b := n.binding(); b != nil {
		upstream, _ := b.Names()
		t.Upstream = LaneHash(upstream)
	}
	if now, err := sys.Monotonic(); err == nil { // else the session begins now
		begun = now - n.result().Duration
	}
	return t.bytes(), begun
}
