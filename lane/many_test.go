package lane_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/lane"
)

// TestThousandsIdle: 500 sessions, 9,000 where everything runs, rest in the lane at once, with at most 130 bytes of this process for each, one descriptor
// and no goroutine; then all go on, byte for byte.
func TestThousandsIdle(t *testing.T) {
	if !alone(t) {
		return
	}
	n := full.Times(500, 9000)
	n = min(n, mostDescriptors(t)/2) // of clients and servers, in one table of descriptors
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: n, Linger: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at, ends := listener(t, "127.0.0.1:0"), newEnds(t)
	sessions := make([]*lane.Session, 0, n)
	routines := runtime.NumGoroutine()
	for len(sessions) < n { // some at a time: until they have left they take a descriptor and two goroutines more
		first := len(sessions)
		for range min(200, n-first) {
			a, b := ends.connect(at)
			s, err := l.Join(a, b, nil)
			if err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, s)
		}
		for i := first; i < len(sessions); i++ {
			until(t, "the session leaves user space", func() bool { ends.exchange(i); return sessions[i].Left() })
		}
		left := uint64(len(sessions))
		until(t, "their sockets are closed", func() bool { return l.Stats().Left == left && runtime.NumGoroutine() <= routines })
	}
	inLane, descriptors := heap.InUse(), openDescriptors(t)
	for i, s := range sessions {
		before := s.Bytes()
		ends.exchange(i)
		if after := s.Bytes(); !s.Left() || after != [2]uint64{before[0] + messageSize, before[1] + messageSize} {
			t.Fatalf("left %v, counted %v and then %v", s.Left(), before, after)
		}
	}
	for _, s := range sessions {
		s.Reset()
	}
	for i := range sessions {
		sessions[i].Wait()
		sessions[i] = nil
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

// mostDescriptors returns how many a table of descriptors has room for beside some hundred others. They are no more than a
// process that has no CAP_SYS_RESOURCE may have.
func mostDescriptors(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Cur, 1<<20)) - 1000
}

// TestMemoryOfTable: a table takes memory of the kernel in proportion to its size, less than 1 KiB for each session, so that the
// bound of a million is less than 1 GiB, and known before there are any.
func TestMemoryOfTable(t *testing.T) {
	t.Parallel()

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
	t.Logf("%d bytes of the kernel's memory for each: %d MB for a million", each, each)
	if each < 100 || each >= 1<<10 {
		t.Errorf("%d bytes of the kernel's memory for each session", each)
	}
}
