package hostile_test

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	byname "github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

func TestMain(m *testing.M) { byname.Main(m, servingName, serveHere) }

// A rig is a load balancer that serves, until the end of the test.
type rig struct {
	*loadbalancer.Instance
	before cost // the cost when it had begun to serve
}

// start has a load balancer serve a configuration, with files beside it.
func start(t *testing.T, text string, files ...string) *rig {
	t.Helper()
	r := &rig{Instance: loadbalancer.Start(t, text, files...)}
	r.before = r.cost()
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A cost is the process's use of scarce resources.
type cost struct {
	descriptors, goroutines int
	heap, arena             int64
}

func (r *rig) cost() cost {
	r.T.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(r.T, err)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c := cost{descriptors: len(list), goroutines: runtime.NumGoroutine(), heap: int64(m.HeapAlloc)}
	c.arena = r.Summary().Arena.Used
	return c
}

// settled waits until no client is left and its resources are free. A reserve for the next
// clients is allowed: places, spare descriptors, a chunk of the arena.
func (r *rig) settled(clients int) {
	r.T.Helper()
	r.Until("no client is left", func() bool { return r.Summary().Connections.Active == 0 })
	now, before := cost{}, r.before
	most := cost{
		descriptors: before.descriptors + 20, goroutines: before.goroutines + 10,
		heap: before.heap + 4<<20 + int64(clients)*1024, arena: before.arena + 2*64<<10, // a chunk for each loop
	}
	for end := time.Now().Add(condition.Patience); ; time.Sleep(20 * time.Millisecond) {
		now = r.cost()
		if now.descriptors <= most.descriptors && now.goroutines <= most.goroutines && now.heap <= most.heap && now.arena <= most.arena {
			return
		}
		if time.Now().After(end) {
			r.T.Fatalf("the process uses %+v, and used %+v before", now, before)
		}
	}
}

func echo(t *testing.T) string { return sockets.Server(t, sockets.Echo) }

// most returns how many clients there may be: wanted, or fewer if RLIMIT_NOFILE is too low. Each
// client costs three descriptors.
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
