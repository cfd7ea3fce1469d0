package hostile_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/balancer"
	"github.com/penstock/penstock/proxy/config"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience is how long a test waits for what happens soon.
const patience = 20 * time.Second

// A rig is a load balancer that serves, until the end of the test.
type rig struct {
	*balancer.Server
	t      *testing.T
	dir    string // of the configuration
	before cost   // what there was when it had begun to serve
}

// start has a load balancer serve what a configuration says, beside which there are files.
func start(t *testing.T, text string, files ...string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	for i := 0; i+1 < len(files); i += 2 {
		r.write(files[i], files[i+1])
	}
	server, err := balancer.Open(context.Background(), r.load(text), balancer.Options{
		Server: &proxy.Config{Loops: 2, MaxConnections: 5000, DrainTimeout: time.Second, Log: slog.New(slog.DiscardHandler)},
	})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-done:
		case <-time.After(patience):
			server.Cut()
			<-done
			t.Error("it does not end")
		}
	})
	r.Server = server
	r.before = r.cost()
	return r
}

// write has a file beside the configuration be another one, at once.
func (r *rig) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	must(r.t, os.WriteFile(path+".new", []byte(text), 0o600))
	must(r.t, os.Rename(path+".new", path))
}

func (r *rig) load(text string) *config.Config {
	r.t.Helper()
	r.write("penstock.yaml", text)
	cfg, problems := config.Load(filepath.Join(r.dir, "penstock.yaml"), os.LookupEnv)
	if len(problems) > 0 {
		r.t.Fatalf("%v", problems)
	}
	return cfg
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listener returns the status of a listener.
func (r *rig) listener(name string) admin.Listener {
	r.t.Helper()
	for _, l := range r.Status().Listeners {
		if l.Name == name && len(l.Addresses) > 0 {
			return l
		}
	}
	r.t.Fatalf("there is no listener %s", name)
	return admin.Listener{}
}

func (r *rig) at(listener string) string { return r.listener(listener).Addresses[0] }

// refused waits until so many clients of a listener were refused for a reason, and fails
// the test if more were, or others for other reasons.
func (r *rig) refused(listener string, want map[string]int64) {
	r.t.Helper()
	all := func(reasons map[string]int64) (n int64) {
		for _, k := range reasons {
			n += k
		}
		return n
	}
	r.until("those who are refused are counted", func() bool { return all(r.listener(listener).Reasons) >= all(want) })
	got := r.listener(listener).Reasons
	for reason := range got {
		if got[reason] != want[reason] {
			r.t.Errorf("%s refused %v, want %v", listener, got, want)
			return
		}
	}
}

// until waits for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not in time: %s", what)
		}
	}
}

// turns is how many turns the loops have taken.
func (r *rig) turns() (n int64) {
	for _, l := range r.Summary().Loops {
		n += l.Turns
	}
	return n
}

// A cost is what the process has of what is scarce.
type cost struct {
	descriptors, goroutines int
	heap, arena             int64
}

func (r *rig) cost() cost {
	r.t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(r.t, err)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c := cost{descriptors: len(list), goroutines: runtime.NumGoroutine(), heap: int64(m.HeapAlloc)}
	if a := r.Summary().Arena; a != nil {
		c.arena = a.Used
	}
	return c
}

// settled waits until nobody is left, and nothing of what they have cost, but for what is
// kept for the next so many who come: places, spare descriptors, a chunk of the arena.
func (r *rig) settled(clients int) {
	r.t.Helper()
	r.until("nobody is left", func() bool { return r.Summary().Connections.Active == 0 })
	now, before := cost{}, r.before
	most := cost{
		descriptors: before.descriptors + 20, goroutines: before.goroutines + 10,
		heap: before.heap + 4<<20 + int64(clients)*1024, arena: before.arena + 2*64<<10, // a chunk for each loop
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		now = r.cost()
		if now.descriptors <= most.descriptors && now.goroutines <= most.goroutines && now.heap <= most.heap && now.arena <= most.arena {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%+v, and before there were %+v", now, before)
		}
	}
}

// echo is a server that echoes.
func echo(t *testing.T) string { return server(t, sockets.Echo) }

// server serves each connection until the end of the test, and returns its address.
func server(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, ln, serve)
	return ln.Addr().String()
}

// most is how many clients there may be, if as many as wanted are too many for the
// descriptors that the process may have: each one costs three.
func most(t *testing.T, wanted int) int {
	t.Helper()
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if there := (int(min(limit.Cur, 1<<20)) - 200) / 3; there < wanted {
		t.Logf("%d clients in place of %d: RLIMIT_NOFILE is %d", there, wanted, limit.Cur)
		return max(there, 1)
	}
	return wanted
}
