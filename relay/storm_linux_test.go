package relay_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// TestUrgentInSignals: a read that comes to the urgent mark with a signal pending
// answers EAGAIN although bytes are queued, and nothing tells of them again. The
// runtime signals its threads to preempt them; here they are all the time.
func TestUrgentInSignals(t *testing.T) {
	for _, e := range engines {
		for _, inline := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/inline=%v", e, inline), func(t *testing.T) {
				eachDriver(t, func(t *testing.T, d *driving) { testUrgentInSignals(t, d, e, inline) })
			})
		}
	}
}

func testUrgentInSignals(t *testing.T, d *driving, e relay.Engine, inline bool) {
	g := d.newRig(t, newRelay(t, &relay.Config{Engine: e}), func(t testing.TB) (halfConn, net.Conn) {
		far, near := sockets.TCPPair(t)
		if inline {
			setInline(t, near)
		}
		return far, near
	}, tcp)
	setInline(t, g.B.(*net.TCPConn)) // a loop passes it on as urgent
	sent, want := []byte("!"), []byte("!")
	if !inline { // the kernel drops the urgent byte, which is the last one
		sent, want = []byte("before!after"), []byte("beforeafter")
	}
	urgent := bytes.IndexByte(sent, '!') + 1
	stop := storm()
	defer stop()
	fd, to, got := sockets.FD(t, g.A.(*net.TCPConn)), sockets.FD(t, g.B.(*net.TCPConn)), make([]byte, len(want))
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if _, err := sys.Send(fd, sent[:urgent], sys.MSG_OOB); err != nil {
			t.Fatal(err)
		}
		if _, err := g.A.Write(sent[urgent:]); err != nil {
			t.Fatal(err)
		}
		have := 0
		condition.Await(t, "what was sent around an urgent byte", func() bool { // the runtime's poller would wait at the mark for ever
			n, err := sys.Recv(to, got[have:], sys.MSG_DONTWAIT)
			if have += max(n, 0); n == 0 && err == nil {
				t.Fatal("an end of file")
			}
			return have == len(want)
		})
		if !bytes.Equal(got, want) {
			t.Fatalf("%q has come, want %q", got, want)
		}
	}
	_, _ = g.A.CloseWrite(), g.B.CloseWrite()
	_, _ = g.wait()
}

// storm sends every thread of the process the runtime's signal for preemption, again
// and again until it is stopped.
func storm() (stop func()) {
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !over.Load() {
			tasks, _ := os.ReadDir("/proc/self/task")
			for range 500 {
				for _, task := range tasks {
					if tid, _ := strconv.Atoi(task.Name()); tid != sys.Gettid() {
						_ = sys.Tgkill(os.Getpid(), tid, syscall.SIGURG) // one that has ended is gone
					}
				}
			}
		}
	}()
	return func() { over.Store(true); <-ended }
}
