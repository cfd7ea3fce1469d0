package router_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// eachPolicy runs a test with a rig for each of them, whose endpoints an outlier detection judges
// that may eject one of three.
func eachPolicy(t *testing.T, cfg router.SnapshotConfig, test func(t *testing.T, r *rig)) {
	for _, p := range lb.Policies() {
		t.Run(p.String(), func(t *testing.T) {
			cfg.BySource = p.Keyed()
			r := newRig(t, 3, cfg, nil)
			outlier := health.NewOutlierDetector(r.keeper, &health.OutlierConfig{
				ConsecutiveFailures: 5, BaseEjectionTime: time.Minute, MaxEjected: 0.5,
			})
			for i := range r.members {
				r.endpoint(i).SetMonitor(outlier.Add("e", r.endpoint(i)))
			}
			r.set = lb.NewSet(r.members, &lb.Config{Policy: p, OnRoom: r.upstream.Room}, nil)
			r.set.Attach()
			r.snapshot.SetEndpoints(r.set)
			test(t, r)
		})
	}
}

// fail has so many connections to an endpoint time out.
func (r *rig) fail(t *testing.T, i, times int) {
	t.Helper()
	for range times {
		for j := range r.members {
			r.endpoint(j).SetDraining(j != i)
		}
		s, _ := r.search()
		if step := s.Next(r.clock); step.Action != worker.Connect || s.Endpoint() != r.endpoint(i) {
			t.Fatalf("%+v", step)
		}
		s.Failed(os.ErrDeadlineExceeded, r.clock)
		s.Close()
		r.pass(time.Second)
	}
	for j := range r.members {
		r.endpoint(j).SetDraining(false)
	}
}

// TestSecondAttempt: by whatever policy, a client that could not reach an endpoint is sent to one
// to which the last connection was made, and to the others only then.
func TestSecondAttempt(t *testing.T) {
	eachPolicy(t, router.SnapshotConfig{Attempts: 2}, func(t *testing.T, r *rig) {
		for range 100 {
			r.endpoint(1).SetFailing(true)
			s, _ := r.search()
			s.Next(r.clock)
			if first := s.Endpoint(); first == r.endpoint(1) {
				s.Close()
				continue
			}
			first := s.Endpoint()
			s.Failed(os.ErrDeadlineExceeded, r.clock)
			if step := s.Next(r.clock); step.Action != worker.Connect || s.Endpoint() == r.endpoint(1) || s.Endpoint() == first {
				t.Fatalf("after %s it is sent to %s, which is failing", first.Name(), step.Address.AddrPort)
			}
			s.Failed(os.ErrDeadlineExceeded, r.clock)
			if s.Next(r.clock); s.Endpoint() != r.endpoint(1) {
				t.Fatal("it is not sent to the third one")
			}
			s.Close()
			for i := range r.members { // as if others had reached them
				r.endpoint(i).SetFailing(false)
				r.endpoint(i).Judge().Reached(r.clock)
			}
		}
		if n := r.active(); n != 0 {
			t.Errorf("%d are acquired in the end", n)
		}
	})
}

// TestWithheldEjection: where two of three endpoints cannot be connected to, and one may be
// ejected, one client at a time finds out whether the other can be, by whatever policy.
func TestWithheldEjection(t *testing.T) {
	eachPolicy(t, router.SnapshotConfig{Attempts: 2}, func(t *testing.T, r *rig) {
		r.fail(t, 0, 5)
		r.fail(t, 1, 5)
		if !r.endpoint(0).State().Ejected || r.endpoint(1).State().Ejected || !r.endpoint(1).Judge().Withheld() {
			t.Fatal("it is not as it was to be")
		}
		r.pass(time.Second)
		var on []*router.Search // the one that finds out
		for range 300 {
			s, _ := r.search()
			if s.Next(r.clock); s.Endpoint() == r.endpoint(1) {
				on = append(on, s)
				continue
			}
			s.Close()
		}
		neverPicksIt := []string{"least_conn", "source_ip", "maglev"} // with one client address, and an idle endpoint beside it
		if len(on) > 1 || len(on) == 0 && !slices.Contains(neverPicksIt, policyOf(t)) {
			t.Errorf("%d clients are sent to it at a time", len(on))
		}
		for _, s := range on {
			s.Failed(os.ErrDeadlineExceeded, r.clock)
			s.Close()
		}
		r.endpoint(2).SetDraining(true) // the other is better than none
		s, _ := r.search()
		if s.Next(r.clock); s.Endpoint() != r.endpoint(1) {
			t.Error("no client is sent to the only one that is left")
		}
		if _, err := s.Reached(r.clock); err != nil {
			t.Fatal(err)
		}
		if r.endpoint(1).Judge().Withheld() {
			t.Error("it is avoided though it can be connected to")
		}
	})
}

// policyOf is the policy of a subtest.
func policyOf(t *testing.T) string { return t.Name()[strings.LastIndexByte(t.Name(), '/')+1:] }

// TestTwoOfThreeDrop: of three servers, two drop all segments. Clients wait for one connect
// timeout at most, except those that came before the failures were known. Then hardly any client
// waits.
func TestTwoOfThreeDrop(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			of := defaults(3)
			of.seed, of.check = seed+1, nil
			w := newWorld(t, of)
			w.come(40, 2*time.Second)
			w.turn(0, dropping)
			w.turn(1, dropping)
			w.come(40, 12*time.Second)
			vain := w.vain()
			w.come(40, 20*time.Second)
			if w.end(); len(w.refused) > 0 || len(w.wrong) > 0 {
				t.Error(w.report(), w.wrong)
			}
			if w.longest > of.connect+of.connect/2 {
				t.Errorf("a client has waited for %v", w.longest)
			}
			if more := w.vain() - vain; more > 10 {
				t.Errorf("%d clients were sent there unsuccessfully in the last 20 s", more)
			}
		})
	}
}
