package server

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/sessionlog"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// Causes of the ends of adopted sessions.
var (
	errAdoptedIdle     = errors.New("it was idle for too long")
	errAdoptedHalf     = errors.New("it was idle for too long after an end of file")
	errAdoptedLifetime = errors.New("it has reached its lifetime")
)

// An adoptedEnd is the end of an adopted session.
type adoptedEnd struct {
	lane.Result
	at  int64 // by the server's clock
	age time.Duration
}

// ends notes the end of a session now.
func (s *adoptedSession) ends(r *lane.Result, now int64) *adoptedEnd {
	return &adoptedEnd{*r, now, s.session.Age()}
}

// part notes why the sessions end that the lane of a process which ends has still, before it is closed. If those in the lane go on without this
// process the function that it returns, which is to be called after [lane.Lane.Leave], notes which: that is their end for it. A session in user
// space is reset by then.
func (a *adopted) part(now func() int64, goOn bool) (parted func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !goOn {
		for _, s := range a.list {
			s.cause = cmp.Or(s.cause, errCut)
		}
		return func() {}
	}
	ends := make([]*adoptedEnd, len(a.list)) // their figures are not to be had afterwards; nil: it had ended before
	for i, s := range a.list {
		v, _ := s.session.Look()
		if s.end.Load() == nil {
			ends[i] = s.ends(&lane.Result{Bytes: s.session.Bytes(), Left: true, Reset: true, View: v}, now())
		}
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for i, s := range a.list {
			switch {
			case ends[i] == nil:
			case s.end.CompareAndSwap(nil, ends[i]):
				s.cause = errLaneLeft
			default:
				if end := s.end.Load(); end.Reset && (end.Err == nil || errors.Is(end.Err, net.ErrClosed)) { // its pumps may find the closed socket first
					s.cause = cmp.Or(s.cause, errCut)
				}
			}
		}
	}
}

// logAdopted writes the line of an adopted session that has ended. Where the session log has the ends of its listener's sessions
// the message is for the debug log, as that of others, and so is that of the end of the process, which has one message for all.
func (s *Server) logAdopted(l *adoptedLine) {
	one, end := l.of, l.of.end.Load()
	by := "an endpoint, by an end of file or a reset"
	switch {
	case one.cause != nil:
		by = one.cause.Error()
	case end.Err != nil:
		by = end.Err.Error()
	}
	sample := verdict.OfLane(&end.View, verdict.Times{})
	v := verdict.Of(&sample)
	r := one.record(end)
	r.Verdict, r.ClientLeg, r.EndpointLeg = v.Kind.String(), record.LegOf(&sample.A.Leg), record.LegOf(&sample.B.Leg)
	level := slog.LevelInfo
	if log := s.sessionLog.sessions.Load(); log != nil && log.Has(sessionlog.End, r.Listener) {
		r.Counts = l.counts
		log.Add(r.Loop, sessionlog.End, r)
		level = slog.LevelDebug
	}
	if errors.Is(one.cause, errCut) || errors.Is(one.cause, errLaneLeft) {
		level = slog.LevelDebug
	}
	s.log.Log(s.ended, level, "an adopted session has ended", "client", one.client, "listener", orUnknown(r.Listener), "upstream", orUnknown(r.Upstream), "endpoint", orUnknown(r.Endpoint), "endpoint_address", one.endpoint,
		"bytes_to_endpoint", one.last[0], "bytes_to_client", one.last[1], "age", end.age.Round(time.Millisecond).String(), "cause", by, "verdict", r.Verdict)
}

// orUnknown is a name, or that of those that are not known.
func orUnknown(name string) string { return cmp.Or(name, admin.UnknownName) }

// record returns the record of a session at its end, without the fields that are not known. It counts as accepted when it was joined, as its age does.
func (s *adoptedSession) record(end *adoptedEnd) *record.Record {
	r := &record.Record{
		ID: s.logID, Adopted: true, Loop: -1, Client: s.source, Local: s.own, EndpointAddress: s.at,
		Accepted: end.at - int64(end.age), Ended: end.at,
	}
	r.Listener, r.Upstream, r.Endpoint = s.names()
	r.Result.AToB.Carried, r.Result.BToA.Carried = int64(end.Bytes[0]), int64(end.Bytes[1])
	r.Result.Reason, r.Err = s.reason(end)
	by := worker.SideOf(end.View.EndedBy)
	var dead *lane.TimedOut
	switch {
	case r.Result.Reason == relay.ReasonReset:
		r.Result.Culprit, r.Result.First = by, worker.SideOf(end.View.OnlyEnd())
	case errors.As(end.Err, &dead) && s.cause == nil:
		r.Result.Culprit = worker.SideOf(dead.By)
	default:
		r.Result.First = by
	}
	return r
}

// reason returns why a session has ended, and the error of that if there is one: as those of a session that has left user space in this process.
func (s *adoptedSession) reason(end *adoptedEnd) (relay.Reason, error) {
	switch {
	case !end.Reset:
		return relay.ReasonEOF, nil
	case errors.Is(s.cause, errAdoptedIdle):
		return relay.ReasonIdle, nil
	case errors.Is(s.cause, errAdoptedHalf):
		return relay.ReasonHalfClose, nil
	case errors.Is(s.cause, errAdoptedLifetime):
		return relay.ReasonLifetime, nil
	case s.cause != nil:
		return relay.ReasonCanceled, s.cause
	case errors.As(end.Err, new(*lane.TimedOut)):
		return relay.ReasonError, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ETIMEDOUT}
	case end.Err != nil:
		return relay.ReasonCanceled, end.Err
	}
	return relay.ReasonReset, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}
