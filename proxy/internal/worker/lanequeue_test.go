package worker_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestLaneQueuedOnce: a session waits once to be asked whether it may leave user space, however often all are asked again, and is in a queue again
// after there was no lane.
func TestLaneQueuedOnce(t *testing.T) {
	t.Parallel()

	r := directed(t, straight(echo(t)), func(c *worker.Config, s *worker.Service) { c.Loops, s.Lane = 1, worker.LaneOn })
	r.serve(t)
	const sessions = 3
	for range sessions {
		talk(t, r.dial(t))
	}
	every := func(*worker.Listening, worker.Binding) bool { return true }
	for _, l := range []*lane.Lane{new(lane.Lane), nil, new(lane.Lane)} { // which is not open: none is asked before the test has ended
		r.SetLane(l, time.Hour)
		for range 20 {
			r.AskLane(every)
		}
		want := sessions
		if l == nil {
			want = 0
		}
		eventually(t, func() bool { return r.LaneQueued(0) == want })
		r.Turn()
		if n := r.LaneQueued(0); n != want {
			t.Errorf("%d wait, want %d", n, want)
		}
	}
}
