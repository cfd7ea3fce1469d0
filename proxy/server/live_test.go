package server_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/state"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/server"
)

// A keptRig is a rig with a file of changes by hand.
type keptRig struct {
	*rig
	store *state.Store
}

// startAt is start with a file of changes by hand.
func startAt(t *testing.T, path, text string, files ...string) *keptRig {
	t.Helper()
	st := state.Open(path)
	t.Cleanup(func() { st.Close() })
	return &keptRig{&rig{loadbalancer.Setting{Change: func(o *server.Options) { o.State = st }}.Start(t, text, files...)}, st}
}

// restart ends a load balancer, and starts the next one.
func (r *keptRig) restart(t *testing.T, path, text string) *keptRig {
	t.Helper()
	must(t, errors.Join(r.End(), r.store.Close()))
	return startAt(t, path, text)
}

// TestStateFileIsTriedAgain: what could not be written to the state file is written later, without another change.
func TestStateFileIsTriedAgain(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "state")
	text := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{name: a, address: %q}, {name: b, address: %[1]q}]}]`, named(t, "a"))
	r := startAt(t, path, text)
	c := stopClock(r.rig)
	must(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700))) // nothing can be written there
	if done := r.change(t, "weight", "a", 3); !strings.Contains(done.Unkept, "tries again") {
		t.Errorf("%+v", done)
	}
	r.Logs("the next restart will lose changes by hand")
	again := c.any(10 * time.Second)
	must(t, os.Remove(path))
	if _, ok := again.step(); !ok {
		t.Fatal("the alarm was stopped")
	}
	r.Logs("the state file can be written again")
	next := r.restart(t, path, text)
	if got := next.live(); len(got) != 1 {
		t.Errorf("after a restart: %q", got)
	}
}

// TestEachChangeSaysThatItIsNotKept: each command that changes something by hand, or takes it back, says that the state
// file could not be written.
func TestEachChangeSaysThatItIsNotKept(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "state")
	r := startAt(t, path, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{split: [{upstream: u, percent: 50}, {upstream: v, percent: 50}]}]}]
upstreams: [{name: u, endpoints: [{name: a, address: %q}]}, {name: v, endpoints: [%[1]q]}]`, named(t, "a")))
	percent := map[string]float64{"u": 40, "v": 60}
	commands := []struct {
		name string
		run  func() (unkept string, err error)
	}{
		{"endpoint drain", func() (string, error) { return r.change(t, "drain", "a", 0).Unkept, nil }},
		{"endpoint ready", func() (string, error) { return r.change(t, "ready", "a", 0).Unkept, nil }},
		{"endpoint ready again", func() (string, error) { return r.change(t, "ready", "a", 0).Unkept, nil }},
		{"split set", func() (string, error) {
			done, err := r.Server.SetSplit("l", 0, percent, "t")
			return done.Unkept, err
		}},
		{"listener drain", func() (string, error) {
			done, err := r.Server.DrainListener("l", "t")
			return done.Unkept, err
		}},
		{"listener ready", func() (string, error) {
			done, err := r.Server.ReadyListener(t.Context(), "l", "t")
			return done.Unkept, err
		}},
		{"deny add", func() (string, error) {
			done, err := r.Deny("10.0.0.7", "", time.Hour, "t")
			return done.Unkept, err
		}},
		{"deny remove", func() (string, error) {
			done, err := r.Server.Undeny("10.0.0.7", "", "t")
			return done.Unkept, err
		}},
	}
	for _, c := range commands {
		if unkept, err := c.run(); err != nil || unkept != "" {
			t.Errorf("%s: %q, error %v", c.name, unkept, err)
		}
	}
	percent["u"], percent["v"] = 30, 70
	must(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700))) // nothing can be written there
	for _, c := range commands {
		if unkept, err := c.run(); err != nil || !strings.Contains(unkept, "tries again") {
			t.Errorf("%s when the file cannot be written: %q, error %v", c.name, unkept, err)
		}
	}
}

// TestStateFileOfADrain: a process that drains does not say that it tries again to write the state file, because it does not.
func TestStateFileOfADrain(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "state")
	r := startAt(t, path, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{name: a, address: %q}, {name: b, address: %[1]q}]}]`, sockets.Server(t, sockets.Echo)))
	held := client(t, r.At("l"))
	echoes(t, held, "x")
	r.Stop()
	r.Until("it drains", func() bool { return r.Status().State == admin.Draining })
	must(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700))) // nothing can be written there
	if done := r.change(t, "weight", "a", 3); !strings.Contains(done.Unkept, path) || strings.Contains(done.Unkept, "tries again") {
		t.Errorf("%+v", done)
	}
	r.Logs(`msg="the next restart will lose changes by hand"`)
	held.Close()
	must(t, r.End())
}

// change changes an endpoint of u.
func (r *rig) change(t *testing.T, what admin.EndpointVerb, endpoint string, weight int) admin.EndpointChanged {
	t.Helper()
	done, err := r.ChangeEndpoint(&admin.EndpointChange{What: what, Upstream: "u", Endpoint: endpoint, Weight: weight}, "uid=7")
	must(t, err)
	return done
}

// live returns the changes by hand, in words.
func (r *rig) live() (list []string) {
	for _, c := range r.Status().Live {
		list = append(list, c.What)
	}
	return list
}

// states returns the states of the endpoints of u, in words.
func (r *rig) states() string {
	var list []string
	for _, u := range r.Status().Upstreams {
		for _, e := range u.Endpoints {
			if u.Name == "u" {
				list = append(list, fmt.Sprintf("%s %s %d", e.Name, e.State, e.Weight))
			}
		}
	}
	return strings.Join(list, ", ")
}

// lived is a configuration with one value for each line that a change may stand on.
type lived struct {
	first, weight, bind, percent, more, other string
	gone                                      bool // the upstream and the listeners are
}

func (l lived) text(a, b string) string {
	if l.gone {
		return fmt.Sprintf("listeners: [{name: n, bind: \"127.0.0.1:0\", upstream: v}]\nupstreams: [{name: v, endpoints: [%q]}]", b)
	}
	rest := 100 - len(l.percent)*10
	return fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", routes: [{split: [{upstream: u, percent: %[1]d}, {upstream: v, percent: %[2]d}]}]}
  - {name: m, bind: "127.0.0.%[3]s:0", upstream: u}
upstreams:
  - {name: u, health_check: off, queue: {size: %[4]s}, endpoints: [{address: %[5]q, name: a, weight: %[6]s%[7]s}, {address: %[8]q, name: b}%[9]s]}
  - {name: v, endpoints: [%[8]q]}`, 100-rest, rest, l.bind, l.other, a, l.weight, l.first, b, l.more)
}

// TestChangesByHandOverReloadsAndRestarts: a change by hand survives reloads that leave its line alone,
// and restarts, and ends by a reload or a restart with another line, or without its upstream or listener. A
// rollback restores it, and a further reload does not.
func TestChangesByHandOverReloadsAndRestarts(t *testing.T) {
	t.Parallel()

	a, b, c := named(t, "a"), named(t, "b"), named(t, "c")
	base := lived{weight: "3", bind: "1", percent: "xx", other: "10"}
	with := func(change func(l *lived)) lived {
		l := base
		change(&l)
		return l
	}
	for name, tc := range map[string]struct {
		make  func(t *testing.T, r *keptRig)
		holds func(r *keptRig) bool
		what  string
		next  lived // with another line
	}{
		"weight": {
			func(t *testing.T, r *keptRig) { r.change(t, "weight", "a", 9) },
			func(r *keptRig) bool { return r.Endpoint("u", "a").Weight == 9 },
			"endpoint u/a: weight 9", with(func(l *lived) { l.weight = "4" }),
		},
		"drain": {
			func(t *testing.T, r *keptRig) { r.change(t, "drain", "a", 0) },
			func(r *keptRig) bool { return r.Endpoint("u", "a").State == admin.Draining },
			"endpoint u/a: drain", with(func(l *lived) { l.first = ", state: maint" }),
		},
		"maint": {
			func(t *testing.T, r *keptRig) { r.change(t, "maint", "a", 0) },
			func(r *keptRig) bool { return r.Endpoint("u", "a").State == admin.Maint },
			"endpoint u/a: maint", with(func(l *lived) { l.first = ", state: drain" }),
		},
		"remove": {
			func(t *testing.T, r *keptRig) { r.change(t, "remove", "a", 0) },
			func(r *keptRig) bool { return r.Endpoint("u", "a").State == admin.Removed },
			"endpoint u/a: removed", with(func(l *lived) { l.weight = "4" }),
		},
		"add": {
			func(t *testing.T, r *keptRig) { r.change(t, "add", c, 2) },
			func(r *keptRig) bool {
				return r.Status().Upstreams[0].Name == "u" && strings.Contains(r.states(), c+" up 2")
			},
			"endpoint u/" + c + ": added", with(func(l *lived) { l.more = fmt.Sprintf(", {address: %q, weight: 7}", c) }),
		},
		"listener": {
			func(t *testing.T, r *keptRig) {
				must(t, r.DrainListener("m", "t"))
			},
			func(r *keptRig) bool { return r.Listener("m").DrainedByHand && len(r.Listener("m").Addresses) == 0 },
			"listener m: drained", with(func(l *lived) { l.bind = "2" }),
		},
		"split": {
			func(t *testing.T, r *keptRig) {
				must(t, r.SetSplit("l", 0, map[string]float64{"u": 12.25, "v": 87.75}, "t"))
			},
			func(r *keptRig) bool { return r.Listener("l").Routes[0].To["u"] == 12.25 },
			"listener l, route 0: split u:12.25,v:87.75", with(func(l *lived) { l.percent = "xxx" }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			r := startAt(t, path, base.text(a, b))
			check := func(when string, holds bool) {
				t.Helper()
				if got := tc.holds(r); got != holds {
					t.Errorf("%s: holds %v, want %v: %s", when, got, holds, r.states())
				}
				if got := slices.Contains(r.live(), tc.what); got != holds {
					t.Errorf("%s: the status has %q", when, r.live())
				}
			}
			check("before", false)
			tc.make(t, r)
			check("at first", true)
			other := with(func(l *lived) { l.other = "11" })
			r.Reload(other.text(a, b))
			check("after a reload of another line", true)
			r = r.restart(t, path, base.text(a, b))
			check("after a restart", true)
			r.Logs("a change by hand from before the restart is in force again", tc.what)
			if plan := r.LiveUnder(r.Load(tc.next.text(a, b))); len(plan) != 1 || plan[0].Ends == "" {
				t.Errorf("the plan of another line has %+v", plan)
			}
			if plan := r.LiveUnder(r.Load(base.text(a, b))); len(plan) != 1 || plan[0].Ends != "" {
				t.Errorf("the plan of the same line has %+v", plan)
			}
			r = r.restart(t, path, tc.next.text(a, b))
			if len(r.live()) != 0 {
				t.Errorf("a restart with another line leaves %q", r.live())
			}
			r.Logs("change by hand ended", tc.what, "cause=")
			r = r.restart(t, path, base.text(a, b))
			check("after that", false)

			tc.make(t, r)
			check("again", true)
			r.Reload(tc.next.text(a, b))
			if len(r.live()) != 0 {
				t.Errorf("a reload with another line leaves %q", r.live())
			}
			r.Reload(base.text(a, b))
			check("after the line is back", false)

			tc.make(t, r)
			gone := base
			gone.gone = true
			r.Reload(gone.text(a, b))
			if len(r.live()) != 0 {
				t.Errorf("a reload without it leaves %q", r.live())
			}
			r.Reload(base.text(a, b))
			check("after it is back", false)

			var first *config.Config // each is another one: a rollback restores over generations, and a reload does not
			for when, next := range map[string]lived{"another line": tc.next, "nothing of it": gone} {
				first = r.Load(base.text(a, b))
				r.apply(t, first)
				tc.make(t, r)
				r.apply(t, r.Load(next.text(a, b)))
				if ended, restored := r.AppliedLive(); len(ended) != 1 || ended[0].What != tc.what || ended[0].Ends == "" || len(restored) != 0 || len(r.live()) != 0 {
					t.Errorf("a change to %s has ended %+v, restored %+v, left %q", when, ended, restored, r.live())
				}
				kept, err := first.Keep().Load() // as a rollback has it
				must(t, err)
				r.apply(t, kept)
				check("after a rollback from "+when, true)
				if ended, restored := r.AppliedLive(); len(ended) != 0 || len(restored) != 1 || restored[0].What != tc.what {
					t.Errorf("a rollback from %s has ended %+v, restored %+v", when, ended, restored)
				}
				r.Logs("a change by hand is in force again", tc.what)
				r.apply(t, r.Load(gone.text(a, b)))
				r.apply(t, r.Load(base.text(a, b)))
				check("after two generations", false)
			}
			first = r.Load(base.text(a, b))
			r.apply(t, first)
			tc.make(t, r)
			r.apply(t, r.Load(tc.next.text(a, b)))
			r.apply(t, first)
			r = r.restart(t, path, base.text(a, b))
			check("after a rollback and a restart", true)
		})
	}
}

// TestRollbackOverGenerations: changes by hand that have ended since come back with the configuration that they stand
// on, however many generations that is ago, and a reload without changes in between loses none.
func TestRollbackOverGenerations(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	text := func(weight int) string {
		return fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [{address: %q, name: a, weight: %d}]}]", a, weight)
	}
	r := startAt(t, filepath.Join(t.TempDir(), "state"), text(1))
	var generations []*config.Config
	for weight := 1; weight <= 3; weight++ {
		r.apply(t, r.Load(text(weight)))
		cfg := r.Load(text(weight)) // the same
		r.apply(t, cfg)
		generations = append(generations, cfg)
		r.change(t, "weight", "a", 10*weight)
	}
	for _, to := range []struct{ generation, weight int }{{1, 20}, {0, 10}} {
		r.apply(t, generations[to.generation])
		if got := r.Endpoint("u", "a").Weight; got != to.weight {
			t.Errorf("after the rollback the weight is %d, want %d", got, to.weight)
		}
	}
	r.apply(t, generations[2])
	r.apply(t, generations[0])
	if got := r.Endpoint("u", "a").Weight; got != 10 {
		t.Errorf("after a rollback over two generations the weight is %d, want 10", got)
	}
}

// TestSplitOverARollback: a split by hand that has ended is in force again after a rollback to the configuration that it was made
// under, also if the listener is the same before the rollback.
func TestSplitOverARollback(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := func(percent int) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{match: {source: ["0.0.0.0/0"]}, split: [{upstream: u, percent: %d}, {upstream: v, percent: %d}]}]}]
upstreams: [{name: u, endpoints: [%q]}, {name: v, endpoints: [%q]}]`, percent, 100-percent, a, b)
	}
	r := startAt(t, filepath.Join(t.TempDir(), "state"), text(100))
	first := r.Load(text(100))
	r.apply(t, first)
	must(t, r.SetSplit("l", 0, map[string]float64{"u": 0, "v": 100}, "test"))
	servedBy(t, r.At("l"), "b")
	r.apply(t, r.Load(text(90)))
	r.apply(t, r.Load(text(100)))
	servedBy(t, r.At("l"), "a")
	r.apply(t, first)
	if to := r.Listener("l").Routes[0].To; to["v"] != 100 || len(r.Status().Live) != 1 {
		t.Errorf("the split is %v, with the changes %+v", to, r.Status().Live)
	}
	servedBy(t, r.At("l"), "b")
}

// apply applies a configuration as a reload does or, if it was in force before, a rollback.
func (r *keptRig) apply(t *testing.T, cfg *config.Config) {
	t.Helper()
	must(t, r.Apply(t.Context(), cfg))
}

// TestAddedEndpoint: an endpoint that was added by hand gets clients, is checked, and is refused where one
// in the file would be.
func TestAddedEndpoint(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, balance: first, health_check: {interval: 20ms, fast_interval: 20ms, rise: 1, fall: 1}, endpoints: [{address: %q, name: a}]}]`, a)
	r := start(t, text)
	l := r.At("l")
	_, err := r.ChangeEndpoint(&admin.EndpointChange{What: admin.EndpointAdd, Upstream: "u", Endpoint: a, Weight: 1}, "t")
	if !errors.Is(err, admin.ErrInvalid) || !strings.Contains(err.Error(), "is the address of the endpoint a") {
		t.Error(err)
	}
	_, err = r.ChangeEndpoint(&admin.EndpointChange{What: admin.EndpointAdd, Upstream: "u", Endpoint: b, Name: a, Weight: 1}, "t")
	if !errors.Is(err, admin.ErrInvalid) || !strings.Contains(err.Error(), "cannot be the address of another one") {
		t.Errorf("with the address of a as its name: %v", err)
	}
	done := r.change(t, "add", b, 1)
	if done.Endpoint != b || done.Taking != 2 || done.Unkept != "no state_file" {
		t.Errorf("%+v", done)
	}
	r.change(t, "drain", "a", 0)
	servedBy(t, l, "b")
	nobody := sockets.Refusing(t)
	r.change(t, "add", nobody, 1)
	r.Until("the added endpoint is found down", func() bool { return r.Endpoint("u", nobody).State == admin.Down })
	if done := r.change(t, "maint", b, 0); done.Taking != 0 || done.Others != "a is drained; "+nobody+" is down" {
		t.Errorf("no endpoint takes clients: %+v", done)
	}
	if done := r.change(t, "ready", b, 0); done.Taking != 1 || done.Others != "" {
		t.Errorf("one takes clients: %+v", done)
	}
	r.Reload(text)
	servedBy(t, l, "b")
	r.change(t, "remove", nobody, 0)
	if done := r.change(t, "remove", b, 0); done.Unkept != "" {
		t.Errorf("nothing is left to be lost at a restart, but: %s", done.Unkept)
	}
	if got := strings.Join(r.live(), "; "); got != "endpoint u/a: drain" {
		t.Errorf("left is %s", got)
	}
	r.Reload(text + "\nstate_file: /state")
	if done := r.change(t, "weight", "a", 2); done.Unkept != "state_file takes effect after a restart" {
		t.Errorf("state_file waits for a restart, but: %s", done.Unkept)
	}
}

// TestMaintenance: an endpoint in maintenance gets no client, not in panic and not as a last resort; it is
// not checked, and its sessions go on. Once it is ready it is checked, and gets clients.
func TestMaintenance(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := startUpstream(t, `drain_timeout: 10ms, panic_below: 1, queue: {size: 0, hold: 0s}, health_check: {interval: 20ms, fast_interval: 20ms, rise: 1, fall: 1}, endpoints: [{address: %q, name: a}]`, a)
	l := r.At("l")
	c := client(t, l)
	line(t, c)
	if done := r.change(t, "maint", "a", 0); done.From != "ready" || done.To != "maint" || done.Taking != 0 {
		t.Errorf("%+v", done)
	}
	refused(t, l)
	echoes(t, c, "its session goes on")
	if done := r.change(t, "drain", "a", 0); done.Sessions != 1 || done.ResetAfterMs == nil || *done.ResetAfterMs != 10 {
		t.Errorf("%+v", done)
	}
	if err := gone(t, c); errors.Is(err, errTimeout) {
		t.Errorf("drain has the session end: %v", err)
	}
	r.change(t, "ready", "a", 0)
	if got := whose(t, l); got != "a" || len(r.live()) != 0 {
		t.Errorf("a client gets %q, %q", got, r.live())
	}
}

// TestEndpointsByHandBesideDiscovery: changes by hand of endpoints that discovery finds last while it does
// not find them, and end when the upstream asks another source; one that was added is discovery's when
// that finds it.
func TestEndpointsByHandBesideDiscovery(t *testing.T) {
	t.Parallel()

	a, b, c := named(t, "a"), named(t, "b"), named(t, "c")
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, discover: {file: {path: %s.yaml}}}]`
	list := func(of ...string) string { return fmt.Sprintf("[%s]", strings.Join(of, ", ")) }
	item := func(address string, weight int) string {
		return fmt.Sprintf("{address: %q, weight: %d}", address, weight)
	}
	path := filepath.Join(t.TempDir(), "state")
	r := startAt(t, path, fmt.Sprintf(text, "eps"), "eps.yaml", list(item(a, 1), item(b, 1)), "eps2.yaml", list(item(a, 1)))
	until := func(want string) {
		t.Helper()
		r.Until(want, func() bool { return r.states() == want })
	}
	until(fmt.Sprintf("%s up 1, %s up 1", a, b))
	r.change(t, "maint", a, 0)
	r.change(t, "weight", b, 5)
	r.change(t, "add", c, 2)
	until(fmt.Sprintf("%s maint 1, %s up 5, %s up 2", a, b, c))
	r.Write("eps.yaml", list(item(b, 1)))
	until(fmt.Sprintf("%s up 5, %s up 2", b, c))
	if live := r.Status().Live; live[0].Waits == "" || live[1].Waits != "" {
		t.Errorf("%+v", live)
	}
	r.Write("eps.yaml", list(item(a, 1), item(b, 1)))
	until(fmt.Sprintf("%s maint 1, %s up 5, %s up 2", a, b, c))
	r.Write("eps.yaml", list(item(a, 1), item(b, 2), item(c, 3)))
	until(fmt.Sprintf("%s maint 1, %s up 2, %s up 3", a, b, c))
	r.Until("changes end", func() bool { return len(r.live()) == 1 })
	r.change(t, "remove", b, 0)
	until(fmt.Sprintf("%s maint 1, %s up 3, %s removed 2", a, c, b))
	r.Reload(fmt.Sprintf(text, "eps2"))
	until(a + " up 1")
	if len(r.live()) != 0 {
		t.Errorf("another source leaves %q", r.live())
	}
}

// TestRemovedEndpointComesBack: an endpoint that was removed comes back with its weight by hand, and gets clients
// whichever state the file has. It is listed with that weight meanwhile, with sessions and without.
func TestRemovedEndpointComesBack(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, on_removed: keep, endpoints: [{address: %q, name: a, weight: %d}, {address: %q, name: b, state: maint}]}]`
	path := filepath.Join(t.TempDir(), "state")
	r := startAt(t, path, fmt.Sprintf(text, a, 1, b))
	c := client(t, r.At("l"))
	line(t, c)
	r.change(t, "weight", "a", 7)
	r.change(t, "drain", "a", 0)
	r.change(t, "remove", "a", 0)
	r.change(t, "remove", "b", 0)
	const removed = "a removed 7, b removed 1"
	if got := r.states(); got != removed {
		t.Errorf("with sessions: %s, want %s", got, removed)
	}
	if live := r.Status().Live; len(live) != 3 || live[0].What != "endpoint u/a: weight 7" || live[0].Waits != "the endpoint is removed" {
		t.Errorf("%+v", live)
	}
	c.Close()
	r.Until("it has no sessions", func() bool { return r.Endpoint("u", "a").Active == 0 })
	if got := r.states(); got != removed {
		t.Errorf("without sessions: %s, want %s", got, removed)
	}
	r = r.restart(t, path, fmt.Sprintf(text, a, 1, b))
	if done := r.change(t, "ready", "a", 0); done.From != "removed" || done.To != "ready" || done.Taking != 1 {
		t.Errorf("%+v", done)
	}
	if done := r.change(t, "ready", "b", 0); done.To != "ready" || done.Taking != 2 {
		t.Errorf("%+v", done)
	}
	if got := r.states(); got != "a up 7, b up 1" {
		t.Error(got)
	}
	r.change(t, "remove", "a", 0)
	for _, other := range []admin.EndpointChange{
		{Name: "c", Weight: 1},
		{Weight: 9},
		{Weight: 1, Zone: "z"},
		{Weight: 1, Backup: true},
		{Weight: 1, Connections: 5},
		{Weight: 1, Name: "a", Endpoint: "127.0.0.1:9"},
	} {
		other.What, other.Upstream, other.Endpoint = admin.EndpointAdd, "u", cmp.Or(other.Endpoint, a)
		if _, err := r.ChangeEndpoint(&other, "t"); !errors.Is(err, admin.ErrInvalid) || !strings.Contains(err.Error(), "brings it back as it was ("+a+", weight 7): ") {
			t.Errorf("%+v: %v", other, err)
		}
	}
	if done := r.change(t, "add", a, 1); done.To != "back at "+a+", weight 7" {
		t.Errorf("%+v", done)
	}
	r.change(t, "remove", "a", 0)
	r.Reload(fmt.Sprintf(text, a, 2, b))
	if got := r.states(); got != "a up 2, b up 1" {
		t.Errorf("with another weight in the file: %s", got)
	}
}

// TestReadyListener: a drained listener accepts again, at its address, or stays drained if that is taken.
func TestReadyListener(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:%s", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, sockets.Port(t), named(t, "a")))
	m := r.At("m")
	for _, first := range []bool{true, false} {
		if done, err := r.Server.DrainListener("m", "t"); err != nil || done.Changed != first {
			t.Fatalf("drained: %+v, %v", done, err)
		}
	}
	var other net.Listener
	r.Until("the address is free", func() (free bool) {
		var err error
		other, err = net.Listen("tcp", m)
		return err == nil
	})
	if err := r.ReadyListener(context.Background(), "m", "t"); err == nil || !r.Listener("m").DrainedByHand || len(r.live()) != 1 {
		t.Errorf("its address is taken: %v, %q", err, r.live())
	}
	other.Close()
	for _, first := range []bool{true, false} {
		if done, err := r.Server.ReadyListener(context.Background(), "m", "t"); err != nil || done.Changed != first {
			t.Fatalf("ready: changed %v, %v", done.Changed, err)
		}
	}
	if got := whose(t, r.At("m")); got != "a" || r.At("m") != m || len(r.live()) != 0 {
		t.Errorf("%s at %s, %q", got, r.At("m"), r.live())
	}
	if err := r.ReadyListener(context.Background(), "x", "t"); !errors.Is(err, admin.ErrNotFound) {
		t.Error(err)
	}
}

// TestAnAddressOfSeveral: an address that several endpoints share does not choose one of them.
func TestAnAddressOfSeveral(t *testing.T) {
	t.Parallel()

	up := named(t, "a")
	r := startUpstream(t, `endpoints: [{address: %q, name: e}, {address: %[1]q, name: f}]`, up)
	for _, err := range []error{r.DrainEndpoint("u", up, true, "test"), r.SetWeight("u", up, 7, "test")} {
		if !errors.Is(err, admin.ErrInvalid) || !strings.Contains(err.Error(), "several endpoints have this address: use one of the names e, f") {
			t.Errorf("one is chosen: %v", err)
		}
	}
	for _, e := range r.Status().Upstreams[0].Endpoints {
		if e.Weight != 1 || e.State != admin.Up {
			t.Errorf("%+v", e)
		}
	}
}

// TestAddedEndpointsInACircle: two endpoints that were added by hand lead to listeners, and a reload would let each lead to the
// upstream of the other one. The later one ends.
func TestAddedEndpointsInACircle(t *testing.T) {
	t.Parallel()

	const text = `
listeners: [{name: a, bind: "127.0.0.1:%s", upstream: %s}, {name: b, bind: "127.0.0.1:%s", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}, {name: v, endpoints: [%[4]q], health_check: off}, {name: w, endpoints: [%[4]q], health_check: off}]`
	a, b, endpoint := sockets.Port(t), sockets.Port(t), named(t, "served")
	r := startWith(t, few, fmt.Sprintf(text, a, "w", b, endpoint))
	for _, add := range [][2]string{{"v", b}, {"u", a}} {
		_, err := r.ChangeEndpoint(&admin.EndpointChange{What: admin.EndpointAdd, Upstream: add[0], Endpoint: "127.0.0.1:" + add[1], Weight: 1}, "test")
		must(t, err)
	}
	r.Reload(fmt.Sprintf(text, a, "v", b, endpoint))
	r.Logs(`msg="a change by hand ended"`, "endpoint u/127.0.0.1:"+a, "connections would go in a circle")
	if left := r.live(); len(left) != 1 || !strings.Contains(left[0], "v/127.0.0.1:"+b) {
		t.Errorf("changes that go on: %q", left)
	}
	for range 4 {
		servedBy(t, "127.0.0.1:"+a, "served")
	}
}
