package worker_test

import (
	"net/netip"
	"runtime"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// plainServer answers one byte to each connection and waits for its end, in one
// goroutine and without garbage.
func plainServer(t *testing.T) (addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 16); err != nil {
		t.Fatal(err)
	}
	name, err := sys.LocalName(fd)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = sys.ShutdownBoth(fd)
		<-ended
		syscall.Close(fd)
	})
	go func() {
		defer close(ended)
		var b [1]byte
		for {
			conn, _, err := sys.AcceptSocket(fd)
			if err != nil {
				return
			}
			_ = syscall.SetNonblock(conn, false)
			_, _ = syscall.Read(conn, b[:])
			_, _ = syscall.Write(conn, b[:])
			_, _ = syscall.Read(conn, b[:])
			syscall.Close(conn)
		}
	}()
	return name.AddrPort.String()
}

// plainClient has one byte sent and returned, without garbage.
func plainClient(t *testing.T, to syscall.Sockaddr, b []byte) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Write(fd, b); err != nil {
		t.Fatal(err)
	}
	if n, err := syscall.Read(fd, b); n != 1 || err != nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
}

// Connections that come and go leave nothing else to the collector.
func TestChurnMakesNoGarbage(t *testing.T) {
	server := plainServer(t)
	r := newRig(t, func(c *worker.Config) { c.Listeners[0].Service, c.Loops = to(t, server), 1 })
	r.serve(t)
	at := netip.MustParseAddrPort(r.addr.String())
	to, b := &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, make([]byte, 1)
	const clients = 500
	churn := func() {
		for range clients {
			plainClient(t, to, b)
		}
		eventually(t, func() bool { return r.Active() == 0 })
	}
	churn()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	churn()
	runtime.ReadMemStats(&after)
	if n := float64(after.Mallocs-before.Mallocs) / clients; n > 0.5 {
		t.Errorf("%.2f allocations for each connection, %d bytes", n, (after.TotalAlloc-before.TotalAlloc)/clients)
	}
}
