package admin_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

// A balancer has one listener, web, and one upstream, shop, with one endpoint, a. It records
// its calls.
type balancer struct {
	laneIs       error // requests of the lane are answered so; under mu
	endingIs     error // EndSessions is answered so; set before use
	mu           sync.Mutex
	told         []string
	drains       bool // whether its process drains
	long         bool // a status is a long answer; set before use
	waits        bool // a look takes its time; set before use
	sessions     int  // number of sessions; set before use
	moreSessions bool
	looks        int // calls of Status
	// status changes a status; nil: nothing is changed. Set before use.
	status func(look int, st *admin.Status)
}

func (b *balancer) drain(drains bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drains = drains
}

func (b *balancer) looked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.looks
}

func (b *balancer) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, fmt.Sprintf(format, args...))
}

func (b *balancer) last() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.told) == 0 {
		return ""
	}
	return b.told[len(b.told)-1]
}

func (b *balancer) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = nil
}

func (b *balancer) Why(ctx context.Context, q admin.WhyQuery) (admin.Why, error) {
	if b.waits {
		select {
		case <-ctx.Done():
			return admin.Why{}, ctx.Err()
		case <-time.After(q.For):
		}
	}
	if q.Listener == "wob" {
		return admin.Why{}, known("listener", q.Listener, "web")
	}
	return admin.Why{WindowUs: q.For.Microseconds(), Verdict: q.Upstream}, nil
}

// endpointName is the name of the endpoint of all sessions. Most of its bytes are within a character.
var endpointName = strings.Repeat("ü", 50)

func (b *balancer) Sessions(_ context.Context, q admin.SessionQuery, o admin.SessionOrder) (admin.SessionList, error) {
	b.note("sessions %s by %q, %d", &q, o.By, o.Top)
	list := func(yield func(admin.Session) bool) {
		for i := range b.sessions {
			if !yield(admin.Session{Client: fmt.Sprint(i), Name: endpointName, State: "joined"}) {
				return
			}
		}
	}
	return admin.SessionList{Sessions: list, More: func() bool { return b.moreSessions }}, known("listener", cmp.Or(q.Listener, "web"), "web")
}

func (b *balancer) EndSessions(_ context.Context, q admin.EndQuery, by string) (admin.Ended, error) {
	b.note("end %s now %v over %v grace %v quiet %v reset %v dry %v by %s", &q.SessionQuery, q.Now, q.Over, q.Grace, q.Quiet, q.ThenReset, q.DryRun, by)
	return admin.Ended{Touched: 3, Ended: 2, Kept: 1, Done: true}, cmp.Or(b.endingIs, known("listener", cmp.Or(q.Listener, "web"), "web"))
}

func (b *balancer) StopEnding(by string) admin.Stopped {
	b.note("stop by %s", by)
	return admin.Stopped{Requests: 1, Kept: 2}
}

func (b *balancer) Sources(_ context.Context, q admin.SourceQuery) (admin.Sources, error) {
	b.note("sources %+v", q)
	return admin.Sources{Sources: []admin.Source{{Source: "10.0.0.7"}}, Known: 1}, nil
}

func (b *balancer) Deny(source, listener string, within time.Duration, by string) (admin.NewDenial, error) {
	b.note("deny %s at %q for %v by %s", source, listener, within, by)
	return admin.NewDenial{Denial: admin.Denial{Source: source, Listener: listener}}, known("listener", cmp.Or(listener, "web"), "web")
}

func (b *balancer) Undeny(source, listener, by string) (admin.Changed, error) {
	b.note("undeny %s at %q by %s", source, listener, by)
	return admin.Changed{Changed: true}, known("listener", cmp.Or(listener, "web"), "web")
}

func (b *balancer) Mirrors(listener string) (admin.MirrorReports, error) {
	b.note("mirrors of %q", listener)
	one := admin.MirrorReport{Listener: "web", Mirrors: admin.Mirrors{Comparisons: []admin.Comparison{{To: "shop"}}}}
	return admin.MirrorReports{Mirrors: []admin.MirrorReport{one}}, known("listener", cmp.Or(listener, "web"), "web")
}

func (b *balancer) ResetMirrors(listener, by string) (admin.MirrorReports, error) {
	b.note("reset of mirrors by %s", by)
	return b.Mirrors(listener)
}

func (b *balancer) SwitchLane(on bool, by string) (admin.LaneChanged, error) {
	b.note("lane %v by %s", on, by)
	return admin.LaneChanged{State: admin.LaneOff}, b.laneError()
}

func (b *balancer) ReturnLane(by string) (admin.LaneChanged, error) {
	b.note("return the lane by %s", by)
	return admin.LaneChanged{State: admin.LaneOff, Returned: 2, Reset: 1}, b.laneError()
}

func (b *balancer) FlushLane(by string) (admin.LaneChanged, error) {
	b.note("flush the lane by %s", by)
	return admin.LaneChanged{State: admin.LaneOff, Reset: 2}, b.laneError()
}

func (b *balancer) laneError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.laneIs
}

func (b *balancer) Denied() []admin.Denial { return []admin.Denial{{Source: "10.0.0.7"}} }

func (b *balancer) Status() admin.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := admin.Serving
	if b.drains {
		state = admin.Draining
	}
	b.looks++
	st := admin.Status{
		State:     state,
		Summary:   admin.Summary{Connections: admin.Connections{Accepted: 5, Active: 3, Refused: 1}},
		Counters:  map[string]int64{"failures": 7},
		Listeners: []admin.Listener{{Name: "web", Addresses: []string{"127.0.0.1:443"}, State: admin.Paused}},
		Upstreams: []admin.Upstream{{Name: "shop", Endpoints: []admin.Endpoint{{Name: "a", State: admin.Down, Active: 3}}}},
	}
	if b.long {
		st.Listeners[0].RefusesAll = strings.Repeat("x", 600<<10)
	}
	if b.status != nil {
		b.status(b.looks, &st)
	}
	return st
}

func known(kind, name, want string) error {
	if name == want {
		return nil
	}
	return fmt.Errorf("%s %q: %w", kind, name, admin.ErrNotFound)
}

func (b *balancer) DrainListener(name, by string) (admin.ListenerDrained, error) {
	b.note("drain listener %s by %s", name, by)
	return admin.ListenerDrained{Changed: name == "web"}, known("listener", name, "web")
}

func (b *balancer) ChangeEndpoint(c *admin.EndpointChange, by string) (admin.EndpointChanged, error) {
	b.note("%s %s of %s: %d%s%s by %s", c.What, c.Endpoint, c.Upstream, c.Weight, c.Name, c.Zone, by)
	return admin.EndpointChanged{Endpoint: c.Endpoint}, known("upstream", c.Upstream, "shop")
}

func (b *balancer) ReadyListener(_ context.Context, name, by string) (admin.Changed, error) {
	b.note("ready listener %s by %s", name, by)
	return admin.Changed{}, known("listener", name, "web")
}

func (b *balancer) SetSplit(listener string, route int, percent map[string]float64, by string) (admin.Changed, error) {
	b.note("split %d of %s: %v by %s", route, listener, percent, by)
	return admin.Changed{Changed: true}, known("listener", listener, "web")
}

// A reloader keeps a number. If bad is set, Reload returns it.
type reloader struct {
	*rollback.Keeper[int]
	apply func() // called if set; set before use
	mu    sync.Mutex
	bad   error
}

func (r *reloader) problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bad
}

func (r *reloader) Reload(ctx context.Context, o rollback.Options) (admin.Reloaded, error) {
	if err := r.problem(); err != nil {
		return admin.Reloaded{}, err
	}
	n, _ := r.Current()
	now, err := r.Apply(ctx, n+1, o)
	return admin.Reloaded{Generation: now.Generation, Changes: now.Changes, Pending: now.Pending}, err
}

func (r *reloader) Rollback(ctx context.Context, to int, by string) (done admin.RolledBack, err error) {
	now, err := r.Keeper.Rollback(ctx, to, by)
	return admin.RolledBack{Generation: now.Generation, Changes: now.Changes}, err
}

func (r *reloader) Generations() rollback.Status { return r.Status() }

func (r *reloader) Plan(_ context.Context, path string, trusted bool) (admin.Plan, error) {
	if path != "" && !trusted {
		return admin.Plan{}, fmt.Errorf("%w: %s", admin.ErrForbidden, path)
	}
	return admin.Plan{Generation: 1, Connections: 3, Changes: []admin.PlannedChange{{What: path, Connections: 2}}}, r.problem()
}

// A rig is a server that listens, and a client of it.
type rig struct {
	*admin.Server
	*admin.Client
	balancer balancer
	reloader reloader
	stopped  chan struct{}
	bind     string
}

// changeToken is the token of rigs over TCP.
const changeToken = "0123456789abcdef"

// access is an address of the API; one of TCP has the token.
func access(bind string) admin.Access {
	a := admin.Access{Bind: bind}
	if !strings.HasPrefix(bind, "unix:") {
		a.ChangeToken = changeToken
	}
	return a
}

// newRig starts a rig; "" is a unix socket.
func newRig(t *testing.T, bind string) *rig {
	t.Helper()
	if bind == "" {
		bind = "unix:" + filepath.Join(t.TempDir(), "s")
	}
	return newRigWith(t, access(bind))
}

func newRigWith(t *testing.T, a admin.Access, set ...func(*admin.Config)) *rig {
	t.Helper()
	r := newQuietRig(t, set...)
	r.bind = a.Bind
	m, err := r.Prepare(t.Context(), a)
	must(t, err)
	m.Commit()
	r.Client, err = admin.NewClientAs(r.Addr(), &admin.Credentials{Token: changeToken})
	must(t, err)
	return r
}

// newQuietRig is newRig without an address and without a client, and with a configuration that set changes.
func newQuietRig(t *testing.T, set ...func(*admin.Config)) *rig {
	t.Helper()
	r := &rig{stopped: make(chan struct{}, 1)}
	r.reloader.Keeper = rollback.New(0, rollback.Config[int]{
		Apply: func(context.Context, int) error {
			if r.reloader.apply != nil {
				r.reloader.apply()
			}
			return nil
		},
		Changes: func(int, int) []string { return []string{"listener web: limits"} },
		Counter: func(name string) (int64, bool) { return 0, name == "failures" },
	})
	t.Cleanup(r.reloader.Close)
	cfg := admin.Config{Balancer: &r.balancer, Reloader: &r.reloader, Stop: func() { r.stopped <- struct{}{} }, Version: "v1"}
	for _, set := range set {
		set(&cfg)
	}
	r.Server = admin.New(cfg)
	t.Cleanup(func() { r.end(t) })
	return r
}

func (r *rig) move(t *testing.T, bind string) {
	t.Helper()
	m, err := r.Prepare(t.Context(), access(bind))
	must(t, err)
	m.Commit()
}

// end ends the server. It may be called again.
func (r *rig) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), condition.Patience)
	defer cancel()
	if err := r.Server.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestMain(m *testing.M) { leak.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
