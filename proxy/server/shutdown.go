package server

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// drain waits until all sessions have ended, or cuts them.
func (s *Server) drain(served <-chan error) error {
	timeout := s.options.DrainTimeout
	left := s.beginDrain(timeout)
	s.log.Info("draining", append(s.waitedFor(left), "drain_timeout", timeout.String())...)
	spread := worker.NewSpread(timeout)
	var step <-chan struct{}
	if timeout > 0 {
		step = s.wait(spread.First)
	}
	for n, look := 0, s.wait(drainLook); ; {
		select {
		case err := <-served:
			s.log.Info("drained")
			return err
		case <-s.cut.Done():
			return <-served
		case <-look:
			s.logWaiting()
			look = s.wait(drainLook)
		case <-step:
			s.cutSome(spread, n, left)
			if n++; n == spread.Steps {
				return <-served
			}
			step = s.wait(spread.Every)
		}
	}
}

// waitedFor returns, for the log, the number of sessions that a drain waits for, and of sessions that go on without this
// process.
func (s *Server) waitedFor(left int64) []any {
	active := s.group.Active()
	if !s.lanes.Leaves() {
		return []any{"active", active}
	}
	return []any{"active", active, "go_on", left}
}

// beginDrain accepts the clients in the queues, and then stops accepting. It returns the number of sessions in the lane
// that go on without this process.
func (s *Server) beginDrain(timeout time.Duration) (left int64) {
	s.mu.Lock()
	s.closing = true
	if timeout > 0 {
		s.drainEnds = time.Now().Add(timeout)
	}
	for _, socket := range s.binds {
		s.sockets.unlink(socket) // before its queue is emptied
	}
	s.mu.Unlock()
	left = s.lanes.Leave()
	s.group.Drain()
	s.host.full.Stop()
	s.host.outOfDescriptors.Stop()
	return left
}

// cutSome cuts some of the sessions that are left, all of them in the last step; left is as in [Server.waitedFor].
func (s *Server) cutSome(spread worker.Spread, step int, left int64) {
	if step == 0 {
		s.log.Warn("the drain ends: the remaining clients are being reset", append(s.waitedFor(left), "resets_within", (time.Duration(spread.Steps-1)*spread.Every).String())...)
	}
	if step == spread.Steps-1 {
		s.Cut()
		return
	}
	s.group.CutMatching(func(*worker.Listening, worker.Binding) bool { return spread.Cuts(step) }, record.ErrEnds)
}

// Cut ends a Serve at once: listeners are closed, and all sessions are reset.
func (s *Server) Cut() {
	s.mu.Lock()
	s.closing = true
	s.cutNow()
	s.mu.Unlock()
	s.lanes.Leave()
	s.group.Cut(record.ErrEnds)
}

const (
	// drainLook is how often the log names the sessions that a drain waits for.
	drainLook = 10 * time.Second
	// drainPlaces is how many listeners and upstreams such a line names; the others are counted.
	drainPlaces = 10
)

func (s *Server) logWaiting() {
	type place struct{ listener, upstream string }
	clients, oldest := make(map[place]int), make(map[place]time.Duration)
	for one := range s.group.Sessions(s.cut, &worker.Query{Brief: true}) {
		at := place{one.Listener, one.Upstream}
		clients[at]++
		oldest[at] = max(oldest[at], one.Age)
	}
	places := slices.SortedFunc(maps.Keys(clients), func(a, b place) int {
		return cmp.Or(cmp.Compare(clients[b], clients[a]), cmp.Compare(a.listener, b.listener), cmp.Compare(a.upstream, b.upstream))
	})
	s.mu.Lock()
	var until []any // empty for a drain without a limit
	if !s.drainEnds.IsZero() {
		until = []any{"until", s.drainEnds.Format(time.RFC3339)}
	}
	s.mu.Unlock()
	for _, at := range places[:min(len(places), drainPlaces)] {
		s.log.Info("the drain waits for sessions", append([]any{
			"listener", at.listener, "upstream", at.upstream, "sessions", clients[at], "oldest", oldest[at].Round(time.Millisecond).String(),
		}, until...)...)
	}
	if more := places[min(len(places), drainPlaces):]; len(more) > 0 {
		n := 0
		for _, at := range more {
			n += clients[at]
		}
		s.log.Info("the drain waits for more sessions", append([]any{"listeners_and_upstreams", len(more), "sessions", n}, until...)...)
	}
}
