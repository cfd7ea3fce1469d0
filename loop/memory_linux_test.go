package loop_test

import (
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/loop"
)

// TestMemoryOfIdleHandlers: heap and stack of a connection that has had its bytes echoed and waits.
func TestMemoryOfIdleHandlers(t *testing.T) {
	for name, way := range map[string]struct {
		handle    func(*loop.Conn) error
		callbacks bool
		most      int64 // bytes
	}{
		"coroutine waits in More": {echoMore, false, 3000},
		"coroutine waits in Next": {echoNext, false, 3000},
		"ErrIdle":                 {echoOnce, false, 500},
		"callback":                {echoOnce, true, 500},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if !inChild(t) { // the runtime uses what other tests have left again
				return
			}
			s := startServer(t, &loop.Server{Handle: way.handle, Callbacks: way.callbacks, Ended: func(*loop.Conn, error) {}})
			each := idleMemory(t, netip.MustParseAddrPort(s.addr))
			t.Logf("%d bytes", each)
			if each > way.most && !race.Enabled {
				t.Errorf("%d bytes, more than %d", each, way.most)
			}
		})
	}
}

// idleMemory opens connections, and returns what one of them takes. The first are not counted: with them come
// the tables and the buffers, and the size of stack that the runtime begins with depends on the mean of those
// that there are (gcComputeStartingStackSize in its stack.go).
func idleMemory(t *testing.T, to netip.AddrPort) int64 {
	t.Helper()
	const first, n, batch = 1000, 4000, 250
	clients := make([]int, 0, first+n)
	defer func() {
		for _, fd := range clients {
			_ = syscall.Close(fd)
		}
	}()
	for range first {
		clients = append(clients, ask(t, to))
	}
	before := inUse()
	for i := range n {
		clients = append(clients, ask(t, to))
		if i%batch == 0 {
			runtime.GC()
		}
	}
	return (inUse() - before) / n
}

// inUse is the heap and the stacks, without garbage.
func inUse() int64 {
	for range 3 { // what is in a sync.Pool goes with the second one
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// ask has four bytes echoed to a socket that takes no memory of this process.
func ask(t *testing.T, to netip.AddrPort) (fd int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	b := []byte("ping")
	if err == nil {
		_, err = syscall.Write(fd, b)
	}
	if err == nil {
		_, err = syscall.Read(fd, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func echoMore(c *loop.Conn) error {
	for {
		if err := c.More(); err != nil {
			return err
		}
		b, err := c.Next(len(c.Buffered()))
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

func echoNext(c *loop.Conn) error {
	for {
		b, err := c.Next(4)
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

// echoOnce serves as a callback, too.
func echoOnce(c *loop.Conn) error {
	b, err := c.Next(len(c.Buffered()))
	if err == nil {
		_, err = c.Write(b)
	}
	if err != nil {
		return err
	}
	return loop.ErrIdle
}
