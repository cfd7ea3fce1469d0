package router

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/mask"
	"github.com/penstock/penstock/relay"
)

// A Rewrite has the bytes of one side of a route's sessions rewritten.
type Rewrite struct {
	Side   relay.Side // that sends them
	Masks  *mask.Set
	Module *filter.Rewriter // in place of Masks; nil: there is none
	Hold   time.Duration    // see [relay.Socket]
}

// Rewrites are the counts of a listener's sessions that are rewritten. They are safe for concurrent use.
type Rewrites struct {
	Masks   mask.Counts
	Modules filter.StreamCounts
	// Sessions are those that have begun, and OffLoop those that were refused, because they would have had to run on
	// goroutines.
	Sessions, OffLoop atomic.Int64
}

// Rewrites returns the counts of the listener's sessions that are rewritten.
func (state *ListenerState) Rewrites() *Rewrites { return &state.rewrites }

// Rewritten implements [worker.Rewriting].
func (s *Search) Rewritten() relay.Side {
	if s.rewrite == nil {
		return relay.SideNone
	}
	return s.rewrite.Side
}

// Rewrite implements [worker.Rewriting].
func (s *Search) Rewrite(on *relay.Socket) {
	counts := &s.listener.state.rewrites
	counts.Sessions.Add(1)
	on.Hold = s.rewrite.Hold
	if m := s.rewrite.Module; m != nil {
		of, _, _ := s.described(nil, false)
		on.Transform = m.NewStream(&of)
		return
	}
	on.Rewriter = s.rewrite.Masks.NewMasker(&counts.Masks)
}

// RewriteOffLoop reports whether the session, which would run on goroutines, is one to be rewritten: so it must not begin.
func (s *Search) RewriteOffLoop() bool {
	if s.rewrite == nil {
		return false
	}
	s.listener.state.rewrites.OffLoop.Add(1)
	return true
}
