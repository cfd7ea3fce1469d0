package lb_test

import (
	"errors"
	"testing"

	"github.com/penstock/penstock/proxy/internal/lb"
	"pgregory.net/rapid"
)

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
