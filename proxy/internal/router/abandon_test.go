package router_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// trying returns a search that tries an endpoint as a last resort to which no connection could be made,
// for as long as it is let.
func (r *rig) trying(t *testing.T) *router.Search {
	t.Helper()
	if tried, _ := r.tries(); len(tried) != len(r.members) {
		t.Fatalf("tried: %v", tried)
	}
	for i := range r.members {
		r.endpoint(i).SetEjected(true)
	}
	r.pass(time.Second)
	s, _ := r.search()
	t.Cleanup(s.Close)
	if step := s.Next(r.clock); step.Action != worker.Connect || step.Recheck <= 0 {
		t.Fatalf("%+v", step)
	}
	r.pass(time.Second)
	if s.Abandon(r.clock) {
		t.Fatal("given up, though none is better")
	}
	return s
}

// TestAbandonForAnother: a client that is being connected as a last resort goes to an endpoint that is
// back, and the attempt that is given up is no failure of its endpoint.
func TestAbandonForAnother(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{}, nil)
	s := r.trying(t)
	failed := r.upstream.Unreached()
	first := r.endpoint(0)
	if first.Active() == 0 {
		t.Fatal("the first one is not the one that is tried")
	}
	other := r.endpoint(1)
	other.SetEjected(false)
	if s.Abandon(r.clock) {
		t.Error("given up for one that is failing")
	}
	other.SetFailing(false)
	if !s.Abandon(r.clock) {
		t.Fatal("it stays, though another one is back")
	}
	s.Failed(worker.ErrAbandoned, r.clock)
	step := s.Next(r.clock)
	if at := step.Address.AddrPort.Addr().String(); step.Action != worker.Connect || at != "10.0.0.2" {
		t.Fatalf("then %v %s", step.Action, at)
	}
	if first.Active() != 0 || r.upstream.Unreached() != failed {
		t.Errorf("%d sessions, %d failures, want %d", first.Active(), r.upstream.Unreached(), failed)
	}
	if _, err := s.Reached(r.clock); err != nil {
		t.Fatal(err)
	}
}

// TestAbandonTheDrained: a client that is being connected to an endpoint is not kept there once it is to
// get no more clients.
func TestAbandonTheDrained(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{Attempts: 1}, nil)
	s, _ := r.search()
	defer s.Close()
	if step := s.Next(r.clock); step.Action != worker.Connect || s.Abandon(r.clock) {
		t.Fatal(step.Action)
	}
	at := 0
	if r.endpoint(1).Active() > 0 {
		at = 1
	}
	_ = r.endpoint(at).SetWeight(0)
	if !s.Abandon(r.clock) {
		t.Error("it stays where the weight is 0")
	}
	_ = r.endpoint(at).SetWeight(1)
	r.endpoint(at).SetDraining(true)
	if !s.Abandon(r.clock) {
		t.Fatal("it stays where it drains")
	}
	s.Failed(worker.ErrAbandoned, r.clock)
	if step := s.Next(r.clock); step.Action != worker.Connect || r.endpoint(at).Active() != 0 || r.endpoint(1-at).Active() != 1 {
		t.Errorf("%v, %d and %d", step.Action, r.endpoint(at).Active(), r.endpoint(1-at).Active())
	}
}

// TestAbandonForTheFallback: a client is not kept at an endpoint with a verdict against it while the fallback
// serves; nor, after a second, at one that others could not reach, which is a failure then.
func TestAbandonForTheFallback(t *testing.T) {
	for _, failing := range []bool{false, true} {
		r := newRig(t, 1, router.SnapshotConfig{Attempts: 1, Respond: []byte("sorry")}, nil)
		s, _ := r.search()
		if step := s.Next(r.clock); step.Action != worker.Connect {
			t.Fatal(step.Action)
		}
		if s.Abandon(r.clock) {
			t.Fatal("given up without a reason")
		}
		r.pass(999 * time.Millisecond)
		if failing {
			r.endpoint(0).SetFailing(true)
			if s.Abandon(r.clock) {
				t.Error("given up within a second, without a verdict")
			}
			r.pass(time.Millisecond)
		} else {
			r.endpoint(0).SetEjected(true)
		}
		if !s.Abandon(r.clock) {
			t.Fatal("it stays, though there is a response for it")
		}
		s.Failed(worker.ErrAbandoned, r.clock)
		if step := s.Next(r.clock); step.Action != worker.Respond {
			t.Errorf("then %v", step.Action)
		}
		if n := r.upstream.Unreached(); (n == 1) != failing {
			t.Errorf("failing %v: %d failures", failing, n)
		}
		s.Close()
	}
}

// TestAbandonOnlyForBetter: one that is usable is waited for, however many others are.
func TestAbandonOnlyForBetter(t *testing.T) {
	r := newRig(t, 3, router.SnapshotConfig{Attempts: 1}, nil)
	s, _ := r.search()
	defer s.Close()
	_ = s.Next(r.clock)
	at := 0
	for i := range 3 {
		if r.endpoint(i).Active() > 0 {
			at = i
		}
	}
	r.pass(999 * time.Millisecond)
	for want := range int64(2) {
		if s.Abandon(r.clock) {
			t.Error("a usable one was given up")
		}
		if n, _ := r.endpoint(at).SlowConnects(); n != want {
			t.Errorf("%d clients have waited for a second, want %d", n, want)
		}
		r.pass(time.Millisecond)
	}
	for i := range 3 { // it was ejected meanwhile
		if r.endpoint(i).Active() > 0 {
			r.endpoint(i).SetEjected(true)
		}
	}
	if !s.Abandon(r.clock) {
		t.Error("it waits for one that is ejected, though others are usable")
	}
	for i := range 3 { // others that are full are no better
		r.endpoint(i).SetLimit(1)
		r.endpoint(i).Acquire()
	}
	if s.Abandon(r.clock) {
		t.Error("it was given up for one without room")
	}
	s.Failed(syscall.ETIMEDOUT, r.clock)
	if n, _ := r.endpoint(at).SlowConnects(); n != 0 {
		t.Errorf("%d clients wait for a connection in the end", n)
	}
}

// TestLastTrialEndsInTime: the connect of a client that is held lasts no longer than it is held.
func TestLastTrialEndsInTime(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{QueueSize: 8, Hold: 3 * time.Second}, nil)
	s, _ := r.search()
	defer s.Close()
	_ = s.Next(r.clock)
	s.Failed(syscall.ECONNREFUSED, r.clock)
	came := r.clock
	for range 100 {
		step := s.Next(r.clock)
		switch step.Action {
		case worker.Park:
			r.pass(max(step.Timeout, time.Millisecond))
		case worker.Connect:
			if step.Timeout <= 0 || r.clock+int64(step.Timeout) > came+int64(3*time.Second+500*time.Millisecond) {
				t.Fatalf("after %v a connect of %v", time.Duration(r.clock-came), step.Timeout)
			}
			r.pass(step.Timeout)
			s.Failed(syscall.ETIMEDOUT, r.clock)
		case worker.GiveUp:
			if held := time.Duration(r.clock - came); held > 3500*time.Millisecond {
				t.Errorf("refused after %v", held)
			}
			return
		}
	}
	t.Error("it is held for ever")
}

// TestSilentToConnects: while a client has waited for a connection for a second, others are sent elsewhere, unless one
// has been connected since.
func TestSilentToConnects(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{Attempts: 2}, nil)
	s, _ := r.search()
	defer s.Close()
	_ = s.Next(r.clock)
	silent := 0
	if r.endpoint(1).Active() > 0 {
		silent = 1
	}
	// sent returns how many of ten further clients are sent there.
	sent := func() (n int) {
		for range 10 {
			before := r.endpoint(silent).Active()
			other, _ := r.search()
			if step := other.Next(r.clock); step.Action != worker.Connect {
				t.Fatalf("a client gets %v", step)
			}
			n += int(r.endpoint(silent).Active() - before)
			other.Close()
		}
		return n
	}
	r.pass(999 * time.Millisecond)
	s.Abandon(r.clock)
	if n := sent(); n == 0 {
		t.Error("within a second none is sent there")
	}
	r.pass(time.Millisecond)
	s.Abandon(r.clock)
	if n := sent(); n > 0 {
		t.Errorf("after a second %d of 10 are sent there", n)
	}
	r.endpoint(1 - silent).SetEjected(true)
	if n := sent(); n != 10 {
		t.Errorf("where it is the only one %d of 10 are sent there", n)
	}
	r.endpoint(1 - silent).SetEjected(false)
	s.Failed(syscall.ETIMEDOUT, r.clock)
	if n := sent(); n == 0 {
		t.Error("after the end of the connect none is sent there")
	}
}
