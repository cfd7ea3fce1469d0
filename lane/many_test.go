package lane_test

import (
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/lane"
)

// TestThousandsIdle: 9,000 sessions rest in the lane at once, with at most 130 bytes of this process for each, one descriptor
// and no goroutine; then all go on, byte for byte. Fewer where RLIMIT_NOFILE allows no more: clients and servers are here as well.
func TestThousandsIdle(t *testing.T) {
	if !alone(t) {
		return
	}
	n := 9000
	if testing.Short() {
		n = 500
	}
	n = min(n, manyDescriptors(t, 3*n+1000)/3)
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: n, Linger: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := listener(t, "127.0.0.1:0")
	routines := runtime.NumGoroutine()
	pairs := make([]pair, 0, n)
	for len(pairs) < n { // some at a time: until they have left they take a descriptor and two goroutines more
		first := len(pairs)
		for range min(200, n-first) {
			pairs = append(pairs, joinedTo(t, l, at))
		}
		for _, p := range pairs[first:] {
			p.talk(t)
		}
		left := uint64(len(pairs))
		until(t, "their sockets are closed", func() bool { return l.Stats().Left == left && runtime.NumGoroutine() <= routines })
	}
	inLane, descriptors := heap.InUse(), openDescriptors(t)
	for _, p := range pairs {
		for _, c := range []*net.TCPConn{p.client, p.server} {
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
		}
		p.exchange(t, []byte("a question"), p.client, p.server)
		p.exchange(t, []byte("an answer"), p.server, p.client)
		if !p.Left() || p.Bytes() != *p.sent {
			t.Fatalf("left %v, %v bytes counted, want %v", p.Left(), p.Bytes(), *p.sent)
		}
	}
	for _, p := range pairs {
		p.Reset()
	}
	for i := range pairs {
		pairs[i].Wait()
		pairs[i].Session = nil
	}
	until(t, "all slots are free", func() bool { return len(l.Sessions()) == 0 })
	each := (inLane - heap.InUse()) / n
	t.Logf("%d sessions, %d bytes for each", n, each)
	if each > 130 {
		t.Errorf("%d bytes for each session, want at most 130", each)
	}
	if held := descriptors - openDescriptors(t); held != n {
		t.Errorf("%d descriptors for %d sessions", held, n)
	}
}

// manyDescriptors raises RLIMIT_NOFILE of this child process to n, if it may, and returns how many there can be beside a few
// hundred others.
func manyDescriptors(t *testing.T, n int) int {
	t.Helper()
	limit := syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		return n
	}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	t.Logf("RLIMIT_NOFILE is %d", limit.Cur)
	return int(limit.Cur) - 1000
}

// TestMemoryOfTable: a table takes memory of the kernel in proportion to its size, less than 1 KiB for each session, so that the
// bound of a million is less than 1 GiB, and known before there are any.
func TestMemoryOfTable(t *testing.T) {
	if !alone(t) {
		return
	}
	memory := func(sessions int) int {
		l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: sessions})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return int(l.Memory())
	}
	few, many := memory(1<<10), memory(1<<12)
	each := (many - few) / (1<<12 - 1<<10)
	t.Logf("%d bytes of the kernel's memory for each: %d MiB for a million", each, each)
	if each < 100 || each >= 1<<10 {
		t.Errorf("%d bytes of the kernel's memory for each session", each)
	}
}
