package relay_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/penstock/penstock/relay"
)

// TestLimitsAreForgotten at the end of a session, with what they are of: who makes sessions in
// the place of others may not come back to that one for long.
func TestLimitsAreForgotten(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	on := ofLoop().looped(t, r)
	A, nearA := tcp(t)
	B, nearB := tcp(t)
	ended := make(chan *relay.Limits, 1)
	s := &loopSession{on: on, limits: &relay.Limits{IdleTimeout: time.Hour}}
	given := weak.Make(s.limits)
	s.ended = func(relay.Result, error) { ended <- s.driven.Limits() }
	on.start(s, on.take(nearA), on.take(nearB))
	A.CloseWrite()
	B.CloseWrite()
	if told := <-ended; told != given.Value() {
		t.Error("the owner is told of other limits")
	}
	on.do(func() { s.limits = nil })
	for range 3 {
		runtime.GC()
	}
	if given.Value() != nil {
		t.Error("they are kept")
	}
	if l := s.Limits(); l == nil {
		t.Error("there are none")
	}
}
