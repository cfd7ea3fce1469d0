package lb_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// fails checks the reason for which a set picks no endpoint.
func (r *rig) fails(req *lb.Request, want error) {
	r.t.Helper()
	if e, err := r.Pick(req); !errors.Is(err, want) {
		r.t.Errorf("Pick: %v, %v; want %v", e, err, want)
	}
}

// For every policy: limits are honoured, endpoints that this client has tried are
// avoided, and the error names the reason.
func TestWhyNot(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		cfg := lb.Config{Policy: p}
		newRig(t, cfg).fails(&lb.Request{}, lb.ErrNoEndpoint)

		r := newRig(t, cfg, member{weight: 1, limit: 2}, member{weight: 3, limit: 1}, member{weight: 0})
		req := client(5)
		counts := make([]int, 3)
		for range 3 {
			counts[r.one(&req)]++
		}
		if counts[0] != 2 || counts[1] != 1 {
			t.Errorf("three picks with limits 2 and 1: %v", counts)
		}
		r.fails(&req, lb.ErrFull)
		r.endpoints[0].Release()
		req.Tried = r.endpoints[:1]
		r.fails(&req, lb.ErrFull) // the other one may have room again
		r.endpoints[1].SetHealthy(false)
		r.fails(&req, lb.ErrTried)
		r.endpoints[0].SetDraining(true)
		r.fails(&req, lb.ErrUnavailable)
	})
}

// Each endpoint is tried once, by every policy, before a client is out of them.
func TestTriedAreAvoided(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		r := newRig(t, lb.Config{Policy: p}, plain(9)...)
		for c := range 50 {
			req := client(c)
			for range 9 {
				e, err := r.Pick(&req)
				if err != nil {
					t.Fatalf("after %d: %v", len(req.Tried), err)
				}
				if tried(&req, e) {
					t.Fatalf("%s was tried already", e.ID())
				}
				e.Release()
				req.Tried = append(req.Tried, e)
			}
			r.fails(&req, lb.ErrTried)
		}
	})
}

func TestFirst(t *testing.T) {
	r := newRig(t, lb.Config{Policy: lb.First}, member{weight: 1, limit: 2}, member{weight: 9, limit: 1}, member{weight: 1})
	for k, want := range []int{0, 0, 1, 2, 2} {
		if got := r.one(&lb.Request{}); got != want {
			t.Errorf("pick %d: endpoint %d, want %d", k, got, want)
		}
	}
	r.endpoints[1].Release()
	if got := r.one(&lb.Request{}); got != 1 {
		t.Errorf("after a release: endpoint %d, want 1", got)
	}
}

// Backups serve when no other is usable for this client, and no longer; that others
// are full is no reason.
func TestBackups(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		r := newRig(t, lb.Config{Policy: p}, member{weight: 1, limit: 1}, member{weight: 1, limit: 1}, member{weight: 1, backup: true})
		req := client(1)
		if a, b := r.one(&req), r.one(&req); a+b != 1 {
			t.Errorf("picked %d and %d, want 0 and 1", a, b)
		}
		r.fails(&req, lb.ErrFull)
		r.endpoints[0].SetHealthy(false)
		r.fails(&req, lb.ErrFull)
		r.endpoints[1].SetBroken(true)
		if got := r.one(&req); got != 2 {
			t.Errorf("picked %d, want the backup", got)
		}
		r.endpoints[1].SetBroken(false)
		r.endpoints[1].Release()
		if got := r.one(&req); got != 1 {
			t.Errorf("picked %d, want the one that is back", got)
		}
		r.endpoints[1].Release()
		req.Tried = r.endpoints[1:2]
		if got := r.one(&req); got != 2 {
			t.Errorf("picked %d for a client that has tried the only primary, want the backup", got)
		}
	})
}

// TestBackupsWhenFull: where backups also serve for full primaries, they get the
// clients for which those have no room. Primaries come first again as soon as they have
// room.
func TestBackupsWhenFull(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		r := newRig(t, lb.Config{Policy: p, BackupWhenFull: true},
			member{weight: 1, limit: 1}, member{weight: 1, limit: 1}, member{weight: 1, limit: 2, backup: true})
		req := client(1)
		if a, b := r.one(&req), r.one(&req); a+b != 1 {
			t.Errorf("picked %d and %d, want 0 and 1", a, b)
		}
		if got := r.one(&req); got != 2 {
			t.Errorf("picked %d while the others are full, want the backup", got)
		}
		r.endpoints[0].Release()
		if got := r.one(&req); got != 0 {
			t.Errorf("picked %d, want the one that has room", got)
		}
		if got := r.one(&req); got != 2 {
			t.Errorf("picked %d, want the backup", got)
		}
		r.fails(&req, lb.ErrFull)
		r.endpoints[2].SetHealthy(false)
		r.fails(&req, lb.ErrFull)
	})
}

func zoned(local, remote int) []member {
	var ms []member
	for range local {
		ms = append(ms, member{weight: 1, zone: "a"})
	}
	for range remote {
		ms = append(ms, member{weight: 1, zone: "b"})
	}
	return ms
}

// The local zone has all until its usable share is below spill_below, and then as
// much as that share is of the bound; the rest goes to other zones.
func TestZones(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		r := newRig(t, lb.Config{Policy: p, Zone: "a", SpillBelow: 0.8}, zoned(10, 10)...)
		for ill, want := range []float64{1, 1, 1, 7 / 8., 6 / 8., 5 / 8., 4 / 8., 3 / 8., 2 / 8., 1 / 8., 0} {
			if ill > 0 {
				r.endpoints[ill-1].SetHealthy(false)
			}
			const picks = 4000
			before := r.picked()
			for i := range picks {
				req := client(i)
				r.endpoints[r.one(&req)].Release()
			}
			got := 0
			for i, n := range r.picked()[:10] {
				got += n - before[i]
			}
			if want := want * picks; float64(got) < want-picks*0.03 || float64(got) > want+picks*0.03 {
				t.Errorf("%d of 10 are unhealthy: %d of %d stay local, want %v", ill, got, picks, want)
			}
		}
		for _, e := range r.endpoints[10:] {
			e.SetHealthy(false)
		}
		r.fails(&lb.Request{}, lb.ErrUnavailable)
		r.endpoints[4].SetHealthy(true)
		if got := r.one(&lb.Request{}); got != 4 {
			t.Errorf("picked %d, want the only usable one", got)
		}
	})
}

// A zone whose endpoints are full overflows to others.
func TestZoneIsFull(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		r := newRig(t, lb.Config{Policy: p, Zone: "a", SpillBelow: 0.7}, member{weight: 1, zone: "a", limit: 1}, member{weight: 1, zone: "b"})
		req := client(3)
		if a, b := r.one(&req), r.one(&req); a != 0 || b != 1 {
			t.Errorf("picked %d and %d, want 0 and 1", a, b)
		}
	})
}

// Below panic_below all endpoints are used, healthy or not, except those that drain.
// Backups are used if no primary is healthy.
func TestPanic(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		ms := append(plain(10), member{weight: 1, backup: true})
		for i := range ms {
			ms[i].limit = 100
		}
		r := newRig(t, lb.Config{Policy: p, PanicBelow: 0.5}, ms...)
		r.endpoints[9].SetDraining(true)
		spread := func() (used int) {
			for i := range 200 {
				req := client(i)
				r.one(&req)
			}
			for _, e := range r.endpoints {
				for n := e.Active(); n > 0; n-- {
					if e.Release(); n == 1 {
						used++
					}
				}
			}
			return used
		}
		ill := func(n int) {
			for i := range 9 {
				r.endpoints[i].SetEjected(i < n)
			}
		}
		atMost := 9
		if !spreads(p) {
			atMost = 2 // which take a hundred each
		}
		for n, want := range map[int]int{4: min(5, atMost), 5: atMost, 8: atMost} {
			ill(n)
			if got := spread(); got != want {
				t.Errorf("%d of 9 are unhealthy: %d are used, want %d", n, got, want)
			}
			if got, want := r.Status().Panic, n > 4; got != want {
				t.Errorf("%d of 9 are unhealthy: panic is %v", n, got)
			}
		}
		ill(9)
		if got := r.one(&lb.Request{}); got != 10 {
			t.Errorf("no primary is healthy: picked %d, want the backup", got)
		}
		r.endpoints[10].SetHealthy(false)
		if got := r.one(&lb.Request{}); got > 8 {
			t.Errorf("no primary is healthy, nor is the backup: picked %d", got)
		}
	})
}

func TestStatus(t *testing.T) {
	r := newRig(t, lb.Config{Zone: "a", SpillBelow: 0.8}, append(zoned(4, 2), member{weight: 1, backup: true}, member{weight: 0})...)
	r.endpoints[0].SetHealthy(false)
	r.endpoints[1].SetDraining(true)
	want := lb.Status{Primaries: 5, UsablePrimaries: 4, UsableBackups: 1, Room: true}
	if got := r.Status(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Two sets of the same endpoints, as there are while a reload is under way, both
// know of everything; a set that was given up is forgotten.
func TestTwoGenerations(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		old := newRig(t, lb.Config{Policy: p}, member{weight: 1, limit: 1}, member{weight: 1, limit: 1})
		var ms []lb.Member
		for _, e := range old.endpoints {
			ms = append(ms, lb.Member{Endpoint: e, Weight: 1, Connections: 2})
		}
		next := lb.NewSet(ms, &lb.Config{Policy: p}, nil)
		if old.endpoints[0].Limit() != 1 {
			t.Error("a set that is not attached has changed an endpoint")
		}
		next.Attach()
		next.Attach() // changes nothing
		for i := range 4 {
			req := client(i)
			from := []*lb.Set{old.Set, next}[i%2]
			if _, err := from.Pick(&req); err != nil {
				t.Fatalf("pick %d: %v", i, err)
			}
		}
		old.fails(&lb.Request{}, lb.ErrFull)
		old.endpoints[1].Release()
		old.Detach()
		old.Detach()
		if n := old.endpoints[1].Seats(); n != 1 {
			t.Errorf("the endpoint is in %d sets, want 1", n)
		}
		if e, err := next.Pick(&lb.Request{}); err != nil || e != old.endpoints[1] {
			t.Errorf("Pick: %v, %v", e, err)
		}
	})
}

// A waiter for room is notified of every place that becomes free.
func TestOnRoom(t *testing.T) {
	told := 0
	r := newRig(t, lb.Config{OnRoom: func() { told++ }}, member{weight: 1, limit: 2}, member{weight: 1, limit: 1})
	said := func(what string, want bool) {
		t.Helper()
		if got := told > 0; got != want {
			t.Errorf("%s: notified %v, want %v", what, got, want)
		}
		told = 0
	}
	for range 3 {
		r.one(&lb.Request{})
	}
	told = 0
	r.endpoints[0].Release()
	said("release", true)
	r.endpoints[0].Release()
	said("another release", true)
	r.endpoints[0].SetHealthy(false)
	said("down", false)
	r.endpoints[0].SetHealthy(true)
	said("up", true)
	r.endpoints[1].SetLimit(5)
	said("a higher limit", true)
}

// A pick allocates nothing, whatever the policy and the state of things.
func TestPickAllocatesNothing(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		for _, ill := range []int{0, 40, 99} {
			r := newRig(t, lb.Config{Policy: p, Zone: "a", SpillBelow: 0.5, PanicBelow: 0.2, SlowStart: time.Second, OnRoom: func() {}}, zoned(50, 50)...)
			for i := range ill {
				r.endpoints[i].SetHealthy(false)
			}
			for _, e := range r.endpoints {
				e.SetLimit(10)
			}
			r.endpoints[99].Added()
			req := client(1)
			req.Tried = r.endpoints[50:52]
			if n := testing.AllocsPerRun(200, func() {
				req := lb.Request{Source: req.Source, Tried: req.Tried}
				if e, err := r.Pick(&req); err == nil {
					e.Release()
				}
			}); n > 0 {
				t.Errorf("%d of 100 are unhealthy: %v allocations", ill, n)
			}
		}
	})
}

// A set takes over the plan of the one that it replaces if it would be the same, and
// nothing else.
func TestPlansAreTakenOver(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		cfg := lb.Config{Policy: p}
		old := lb.NewSet(benchMembers(50, true), &cfg, nil)
		if next := lb.NewSet(benchMembers(50, true), &cfg, old); !next.SharesPlan(old) {
			t.Error("the same endpoints and weights, and another plan")
		}
		heavier := benchMembers(50, true)
		heavier[3].Weight++
		for what, ms := range map[string][]lb.Member{"fewer": benchMembers(49, true), "other weights": heavier} {
			if next := lb.NewSet(ms, &cfg, old); next.SharesPlan(old) {
				t.Errorf("%s, and the same plan", what)
			}
		}
		if next := lb.NewSet(benchMembers(50, true), &lb.Config{Policy: (p + 1) % 6}, old); next.SharesPlan(old) {
			t.Error("another policy, and the same plan")
		}
	})
}

// TestRoom: a set has room for as long as one usable endpoint of it does, be it a backup.
func TestRoom(t *testing.T) {
	r := newRig(t, lb.Config{}, member{weight: 1, limit: 1}, member{weight: 1, limit: 1, backup: true})
	a, b := r.endpoints[0], r.endpoints[1]
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"at first", func() {}, true},
		{"with a full primary", func() { a.Acquire() }, true},
		{"with both full", func() { b.Acquire() }, false},
		{"with a primary that has room, and is down", func() { a.Release(); a.SetHealthy(false) }, false},
		{"when it is healthy", func() { a.SetHealthy(true) }, true},
	} {
		step.do()
		if got := r.Status().Room; got != step.want {
			t.Errorf("%s: %v", step.what, got)
		}
	}
}

// TestLastResortModel holds for every policy. A last resort is picked if an endpoint
// exists that is neither barred, failing, draining, of weight 0, full nor tried. No
// other endpoint is picked. If it has to be healthy, a healthy one is picked. In panic
// it makes no difference that it is down, ejected, broken or barred.
func TestLastResortModel(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		rapid.Check(t, func(rt *rapid.T) {
			var members []member
			for range rapid.IntRange(0, 6).Draw(rt, "endpoints") {
				members = append(members, member{
					weight: rapid.IntRange(0, 2).Draw(rt, "weight"), limit: rapid.IntRange(0, 1).Draw(rt, "limit"),
					backup: rapid.IntRange(0, 4).Draw(rt, "backup") == 0,
				})
			}
			r := newRig(t, lb.Config{Policy: p, BackupWhenFull: true, PanicBelow: rapid.SampledFrom([]float64{0, 0.6}).Draw(rt, "panic below")}, members...)
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				if len(members) > 0 {
					turnOne(rt, r.endpoints[rapid.IntRange(0, len(members)-1).Draw(rt, "which")])
				}
				r.checkLastResort(rt, members)
			}
		})
	})
}

// turnOne changes something about an endpoint.
func turnOne(rt *rapid.T, e *lb.Endpoint) {
	on := rapid.Bool().Draw(rt, "on")
	switch rapid.IntRange(0, 6).Draw(rt, "what") {
	case 0:
		e.SetHealthy(!on)
	case 1:
		e.SetEjected(on)
	case 2:
		e.SetBroken(on)
	case 3:
		e.SetBarred(on)
	case 4:
		e.SetFailing(on)
	case 5:
		e.SetDraining(on)
	default:
		if on {
			e.AcquireAnyway(rapid.Bool().Draw(rt, "panicking"))
		} else if e.Active() > 0 {
			e.Release()
		}
	}
}

func (r *rig) checkLastResort(rt *rapid.T, members []member) {
	which := rapid.SampledFrom([]lb.Eligibility{lb.Working, lb.LastResort}).Draw(rt, "which")
	req := client(rapid.IntRange(0, 9).Draw(rt, "client"))
	req.Eligible = which
	for _, e := range r.endpoints {
		if rapid.IntRange(0, 3).Draw(rt, "tried") == 0 {
			req.Tried = append(req.Tried, e)
		}
	}
	may := func(i int) bool {
		e, st := r.endpoints[i], r.endpoints[i].State()
		room := e.Weight() > 0 && !st.Draining && (members[i].limit == 0 || st.Active < members[i].limit)
		for _, panicking := range []bool{false, true} {
			if open := e.CanAcquireAnyway(panicking); open != (room && (!st.Barred || panicking)) {
				rt.Fatalf("%+v, panicking %v: that it is open is %v", st, panicking, open)
			}
		}
		ill, barred := st.Down || st.Ejected || st.Broken, st.Barred
		if !r.Panicking() && (which == lb.Working && ill || which == lb.LastResort && barred) {
			return false
		}
		return room && !e.Failing() && !tried(&req, e)
	}
	any := false
	for i := range members {
		any = any || may(i)
	}
	e, err := r.Pick(&req)
	if any != (err == nil) {
		rt.Fatalf("%v, want an endpoint: %v", err, any)
	}
	if err != nil {
		return
	}
	e.Release()
	for i, other := range r.endpoints {
		if other == e && !may(i) {
			rt.Fatalf("%+v was picked", e.State())
		}
	}
}

// TestLastResortSays why there is none, and leaves backups in reserve for primaries that are
// full, unless they serve for these.
func TestLastResortSays(t *testing.T) {
	r := newRig(t, lb.Config{}, member{weight: 1, limit: 1}, member{weight: 1}, member{weight: 1, backup: true})
	for _, e := range r.endpoints {
		e.SetEjected(true)
	}
	req := lb.Request{Eligible: lb.LastResort}
	r.endpoints[0].AcquireAnyway(false)
	r.endpoints[1].SetFailing(true)
	r.fails(&req, lb.ErrFull)
	r.endpoints[0].SetBarred(true)
	if got := r.one(&req); got != 2 {
		t.Errorf("picked %d, want the backup", got)
	}
	req.Tried = r.endpoints[2:]
	r.fails(&req, lb.ErrTried)
	r.endpoints[2].SetFailing(true)
	if _, err := r.Pick(&req); !errors.Is(err, lb.ErrUnavailable) {
		t.Error(err)
	}
}

// eachSize runs a benchmark for each policy with a few endpoints and with many, all of
// them or a tenth of them usable.
func eachSize(b *testing.B, f func(b *testing.B, r *rig)) {
	for _, p := range lb.Policies() {
		for _, n := range []int{10, 10_000} {
			for _, ill := range []float64{0, 0.9, 0.999} {
				b.Run(fmt.Sprintf("policy=%v/endpoints=%d/ill=%v", p, n, ill), func(b *testing.B) {
					r := newRig(b, lb.Config{Policy: p}, plain(n)...)
					r.SetRandom(rand.Uint64)
					for i := range int(float64(n) * ill) {
						r.endpoints[i*7%n].SetHealthy(false)
					}
					b.ResetTimer()
					f(b, r)
				})
			}
		}
	}
}

// BenchmarkPick is one pick and one release, with 64 sessions alive meanwhile.
func BenchmarkPick(b *testing.B) {
	eachSize(b, func(b *testing.B, r *rig) {
		b.ReportAllocs()
		churn(b, r, 0, func() bool { return b.Loop() })
	})
}

func BenchmarkPickParallel(b *testing.B) {
	eachSize(b, func(b *testing.B, r *rig) {
		b.RunParallel(func(pb *testing.PB) { churn(b, r, rand.IntN(1<<20), pb.Next) })
	})
}

func churn(b *testing.B, r *rig, from int, next func() bool) {
	var alive [64]*lb.Endpoint
	requests := make([]lb.Request, 4096)
	for i := range requests {
		requests[i] = client(from + i)
	}
	for i := 0; next(); i++ {
		e, err := r.Pick(&requests[i%len(requests)])
		if err != nil {
			b.Error(err)
			return
		}
		if old := alive[i%64]; old != nil {
			old.Release()
		}
		alive[i%64] = e
	}
	for _, e := range alive {
		if e != nil {
			e.Release()
		}
	}
}

// BenchmarkNewSet measures the part of a reload that is computed beside the serving
// set. BenchmarkAttach measures its part at the moment of the swap.
func BenchmarkNewSet(b *testing.B) {
	for _, p := range lb.Policies() {
		for _, n := range []int{100, 1000, 10_000} {
			for _, weights := range []string{"equal", "mixed"} {
				b.Run(fmt.Sprintf("policy=%v/endpoints=%d/weights=%s", p, n, weights), func(b *testing.B) {
					ms := benchMembers(n, weights == "mixed")
					b.ReportAllocs()
					for b.Loop() {
						lb.NewSet(ms, &lb.Config{Policy: p}, nil)
					}
				})
			}
		}
	}
}

func benchMembers(n int, mixed bool) []lb.Member {
	rng := rand.New(rand.NewPCG(5, 6))
	ms := make([]lb.Member, n)
	for i := range ms {
		ms[i] = lb.Member{Endpoint: lb.NewEndpoint(lb.EndpointConfig{ID: name(i)}), Weight: 1}
		if mixed {
			ms[i].Weight = 1 + rng.IntN(lb.MaxWeight)
		}
	}
	return ms
}

// TestTriedTwice: an endpoint that is named twice as tried does not hide that another one is full.
func TestTriedTwice(t *testing.T) {
	tried, full := lb.NewEndpoint(lb.EndpointConfig{ID: "a", Weight: 1}), lb.NewEndpoint(lb.EndpointConfig{ID: "b", Weight: 1})
	s := lb.NewSet([]lb.Member{{Endpoint: tried, Weight: 1}, {Endpoint: full, Weight: 1, Connections: 1}}, nil, nil)
	s.Attach()
	full.Add()
	if _, err := s.Pick(&lb.Request{Tried: []*lb.Endpoint{tried, tried}}); err != lb.ErrFull {
		t.Errorf("%v, want %v", err, lb.ErrFull)
	}
}
