package relay_test

import (
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// TestUrgentInSignals: a read that comes to the urgent mark with a signal pending
// answers EAGAIN although bytes are queued, and nothing tells of them again. The
// runtime signals its threads to preempt them; here they are all the time.
func TestUrgentInSignals(t *testing.T) {
	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			r, d := newRelay(t, &relay.Config{Engine: e}), ofLoop()
			g := d.newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
				far, near := sockets.TCPPair(t)
				setInline(t, near)
				return far, near
			}, tcp)
			stop := storm()
			fd, buf := sockets.FD(t, g.A.(*net.TCPConn)), make([]byte, 1)
			for end := time.Now().Add(time.Second); time.Now().Before(end); {
				if _, err := sys.Send(fd, []byte{'!'}, sys.MSG_OOB); err != nil {
					t.Fatal(err)
				}
				_ = g.B.SetReadDeadline(time.Now().Add(patience / 6))
				if _, err := io.ReadFull(g.B, buf); err != nil {
					t.Errorf("an urgent byte does not come through: %v", err)
					break
				}
			}
			stop()
			_, _ = g.A.CloseWrite(), g.B.CloseWrite()
			_, _ = g.wait()
		})
	}
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
