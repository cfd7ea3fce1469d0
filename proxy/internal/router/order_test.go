package router_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestHeldKeepTheirOrder: after an outage, when the only endpoint serves again and is full, the
// clients that were held have its room before those that come later. The later ones are not held
// for want of an endpoint. One whose time is over is refused as in a queue.
func TestHeldKeepTheirOrder(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{QueueSize: 10, QueueTimeout: 5 * time.Second, Hold: 3 * time.Second}, nil)
	r.endpoint(0).SetLimit(1)
	come := func() *router.Search {
		s, _ := r.search()
		return s
	}
	parks := func(who string, s *router.Search) {
		t.Helper()
		if step := s.Next(r.clock); step.Action != worker.Park {
			t.Fatalf("%s: %v, %v", who, step.Action, s.Err())
		}
	}
	connects := func(who string, s *router.Search) worker.Binding {
		t.Helper()
		if step := s.Next(r.clock); step.Action != worker.Connect {
			t.Fatalf("%s: %v, %v", who, step.Action, s.Err())
		}
		limits, err := s.Reached(r.clock)
		if err != nil {
			t.Fatal(err)
		}
		return limits.Of.(worker.Binding)
	}
	first, second, third, fourth := come(), come(), come(), come()
	r.inVain(first)
	parks("the second, in the outage", second)
	held := r.upstream.Counts().Held
	r.clock += int64(time.Second)
	session := connects("the first, that is held", first)
	parks("the second", second)
	parks("the third, when the endpoint is full", third)
	session.Ended(answered, nil)
	parks("the fourth, when there is room", fourth)
	parks("the third, when there is room", third)
	session = connects("the second, when there is room", second)
	parks("the third", third)
	if n := r.upstream.Counts().Held; n != held || n != 2 {
		t.Errorf("%d are held for want of an endpoint, %d of them in the outage", n, held)
	}
	r.clock += int64(6 * time.Second)
	if step := third.Next(r.clock); step.Action != worker.GiveUp || r.upstream.Refusals().ByReason()["queue_timeout"] != 1 {
		t.Errorf("the third after its time: %v, %v, %v", step.Action, third.Err(), r.upstream.Refusals().ByReason())
	}
	session.Ended(answered, nil)
	for _, s := range []*router.Search{first, second, third, fourth} {
		s.Close()
	}
}
