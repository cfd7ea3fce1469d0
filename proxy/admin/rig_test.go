package admin_test

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

// A balancer has one listener, web, and one upstream, shop, with one endpoint, a. It records
// its calls.
type balancer struct {
	mu       sync.Mutex
	told     []string
	drains   bool // whether its process drains
	more     int  // further listeners; set before use
	sessions int  // number of sessions; set before use
}

// drain sets whether its process drains.
func (b *balancer) drain(drains bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drains = drains
}

func (b *balancer) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, fmt.Sprintf(format, args...))
}

// last returns the last recorded call.
func (b *balancer) last() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.told) == 0 {
		return ""
	}
	return b.told[len(b.told)-1]
}

// forget drops the recorded calls.
func (b *balancer) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = nil
}

func (b *balancer) Why(_ context.Context, q admin.WhyQuery) (admin.Why, error) {
	return admin.Why{WindowUs: q.For.Microseconds(), Verdict: q.Upstream}, nil
}

func (b *balancer) Sessions(context.Context) iter.Seq[admin.Session] {
	return func(yield func(admin.Session) bool) {
		for i := range b.sessions {
			if !yield(admin.Session{Client: fmt.Sprint(i), State: "joined"}) {
				return
			}
		}
	}
}

func (b *balancer) Status() admin.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := admin.Serving
	if b.drains {
		state = admin.Draining
	}
	return admin.Status{
		State:     state,
		Summary:   admin.Summary{Connections: admin.Connections{Accepted: 5, Active: 3, Refused: 1}},
		Counters:  map[string]int64{"failures": 7},
		Listeners: append([]admin.Listener{{Name: "web", Addresses: []string{"127.0.0.1:443"}, State: admin.Paused}}, make([]admin.Listener, b.more)...),
		Upstreams: []admin.Upstream{{Name: "shop", Endpoints: []admin.Endpoint{{Name: "a", State: admin.Down, Active: 3}}}},
	}
}

func known(kind, name, want string) error {
	if name == want {
		return nil
	}
	return fmt.Errorf("%s %q: %w", kind, name, admin.ErrNotFound)
}

func (b *balancer) DrainListener(name string) error {
	b.note("drain listener %s", name)
	return known("listener", name, "web")
}

func (b *balancer) DrainEndpoint(upstream, endpoint string, drain bool) error {
	b.note("drain %s of %s: %v", endpoint, upstream, drain)
	return known("upstream", upstream, "shop")
}

func (b *balancer) SetWeight(upstream, endpoint string, weight int) error {
	b.note("weight %s of %s: %d", endpoint, upstream, weight)
	return known("upstream", upstream, "shop")
}

func (b *balancer) SetSplit(listener string, route int, percent map[string]float64) error {
	b.note("split %d of %s: %v", route, listener, percent)
	return known("listener", listener, "web")
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
	now, err := r.Apply(ctx, 0, o)
	return admin.Reloaded{Generation: now.Generation, Changes: []string{"listener web: limits"}, Pending: now.Pending}, err
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

// newRig starts a rig; "" is a unix socket.
func newRig(t *testing.T, bind string) *rig {
	t.Helper()
	r := newQuietRig(t)
	if r.bind = bind; bind == "" {
		r.bind = "unix:" + filepath.Join(t.TempDir(), "s")
	}
	r.move(t, r.bind)
	var err error
	if r.Client, err = admin.NewClient(r.Addr()); err != nil {
		t.Fatal(err)
	}
	return r
}

// newQuietRig is newRig without an address and without a client.
func newQuietRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{stopped: make(chan struct{}, 1)}
	r.reloader.Keeper = rollback.New(0, rollback.Config[int]{
		Apply: func(context.Context, int) error {
			if r.reloader.apply != nil {
				r.reloader.apply()
			}
			return nil
		},
		Counter: func(name string) (int64, bool) { return 0, name == "failures" },
	})
	t.Cleanup(r.reloader.Close)
	r.Server = admin.New(admin.Config{
		Balancer: &r.balancer, Reloader: &r.reloader, Stop: func() { r.stopped <- struct{}{} }, Version: "v1",
	})
	t.Cleanup(func() { r.end(t) })
	return r
}

// move changes the server's address.
func (r *rig) move(t *testing.T, bind string) {
	t.Helper()
	m, err := r.Prepare(t.Context(), bind)
	if err != nil {
		t.Fatal(err)
	}
	m.Commit()
}

// end ends the server. It may be called again.
func (r *rig) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Server.Close(ctx); err != nil {
		t.Error(err)
	}
}
