package worker_test

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// turnBound is how much CPU time a turn of a loop may have for a request of an operator. The test
// allows ten times that: the machine may be slow, and the collector may work in the turn.
const turnBound = time.Millisecond

// A partMeter measures the CPU time of parts of requests, each on the thread of its loop. A loop counts its whole
// turns of a millisecond: all that a request leaves to a turn is in those.
type partMeter struct {
	overruns func() int64
	before   int64

	mu    sync.Mutex
	spent []time.Duration
	err   error
}

func (m *partMeter) measure(part func()) {
	runtime.LockOSThread() // the collector may stop it, and have it go on elsewhere
	defer runtime.UnlockOSThread()
	before, err := sys.ThreadCPUTime()
	part()
	after, errAfter := sys.ThreadCPUTime()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent = append(m.spent, after-before)
	if err != nil || errAfter != nil {
		m.err = errors.Join(err, errAfter)
	}
}

// longest returns the longest part since the last call.
func (m *partMeter) longest(t testing.TB, of string, took time.Duration) {
	t.Helper()
	over := m.overruns() // asks the loops, which may wait for mu
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || len(m.spent) == 0 {
		t.Fatalf("%s: %d parts, %v", of, len(m.spent), m.err)
	}
	slices.Sort(m.spent)
	most := m.spent[len(m.spent)-1]
	t.Logf("%s: %v in %d parts; CPU of one: half of them up to %v, 99 %% up to %v, all up to %v; %d turns took a millisecond", of, took.Round(time.Millisecond), len(m.spent), m.spent[len(m.spent)/2], m.spent[len(m.spent)*99/100], most, over-m.before)
	if n := int(over - m.before); n > 2+len(m.spent)/100 && !raceEnabled {
		t.Errorf("%s: %d turns took a millisecond of CPU time", of, n)
	}
	m.before = over
	if most > 10*turnBound {
		t.Errorf("%s: a part took %v of CPU time, want less than %v", of, most, turnBound)
	}
	m.spent = nil
}

// TestManySessions: of 100,000 sessions, lists and the end of half of them take parts of less than a
// millisecond of CPU time. As many as there are descriptors for have sockets; of the others only the
// answers of the kernel are simulated.
func TestManySessions(t *testing.T) {
	const all, loops = 100_000, 2
	real := min(all, max(freeDescriptors(t)-1000, 0)/2)
	if testing.Short() || raceEnabled {
		real = min(real, 1000)
	}
	m := new(partMeter)
	r := newRig(t, func(c *worker.Config) { c.Loops, c.MaxConnections, c.TurnCPU = loops, all, true })
	r.SetParts(m.measure)
	r.serve(t)
	for i := range loops {
		pairs := make([][2]int, 0, real/loops)
		for range real / loops {
			pairs = append(pairs, tcpPair(t, len(pairs)))
		}
		restore, err := r.Simulate(i, pairs, (all-real)/loops)
		if err != nil {
			t.Fatal(err)
		}
		defer restore()
	}
	real = real / loops * loops
	t.Logf("%d sessions, %d of them with sockets", all, real)
	m.overruns = func() (n int64) {
		for _, l := range r.Summary().Loops {
			n += l.Overruns
		}
		return n
	}
	r.Turn() // the turns that have made them are over, and counted if their threads were the same to the end
	m.before = m.overruns()
	ids := make(map[int][]worker.ID)
	list := func(of string, q *worker.Query) (n int) {
		t.Helper()
		began := time.Now()
		for s := range r.Sessions(t.Context(), q) {
			if n++; of == "all" {
				ids[s.Loop] = append(ids[s.Loop], s.ID)
			}
		}
		m.longest(t, of, time.Since(began))
		return n
	}
	if n := list("all", new(worker.Query)); n < all-loops || n > all {
		t.Errorf("%d are listed, want %d", n, all)
	}
	for of, q := range map[string]*worker.Query{
		"another listener": {Listener: "none"}, "another source": {Source: source.Prefix(netip.MustParsePrefix("10.0.0.0/8"))},
		"another endpoint": {Endpoint: "192.0.2.1:1"}, "older": {Older: time.Hour}, "more bytes": {Bytes: 1 << 40},
	} {
		if n := list(of, q); n != 0 {
			t.Errorf("%s: %d are listed", of, n)
		}
	}
	if n := list("with samples", &worker.Query{Source: source.Prefix(netip.MustParsePrefix("127.0.0.0/8")), Sample: true}); n != real {
		t.Errorf("%d have sockets, want %d", n, real)
	}
	began := time.Now()
	var lists sync.WaitGroup
	for range 8 {
		lists.Go(func() {
			for range r.Sessions(t.Context(), new(worker.Query)) {
			}
		})
	}
	lists.Wait()
	m.longest(t, "eight lists at once", time.Since(began))
	began, ended := time.Now(), 0
	for _, of := range ids {
		half := of[:0]
		for i, id := range of {
			if i%2 == 0 {
				half = append(half, id)
			}
		}
		if err := r.End(t.Context(), half, 0, func(_ worker.ID, e worker.EndResult) {
			if e == worker.EndedNow {
				ended++
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	m.longest(t, "the end of half of them", time.Since(began))
	if left := int(r.Summary().Active); ended < real/2-loops || ended > real/2+loops || left != real-ended {
		t.Errorf("%d of %d were ended, %d are left", ended, real, left)
	}
}

// freeDescriptors returns how many descriptors the process may open, about.
func freeDescriptors(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Cur, 1<<20))
}

// listening are sockets of several addresses, each of which has ports for some of the pairs.
var listening = make(map[int]*net.TCPListener)

// tcpPair makes a connection of two descriptors, which are the caller's.
func tcpPair(t *testing.T, n int) (pair [2]int) {
	t.Helper()
	at := n / 10_000
	if listening[at] == nil {
		ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+at))})
		if err != nil {
			t.Fatal(err)
		}
		listening[at] = ln
		t.Cleanup(func() { ln.Close(); delete(listening, at) })
	}
	ln := listening[at]
	to := ln.Addr().(*net.TCPAddr)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	c, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	other, err := loop.Take(c)
	if err != nil {
		t.Fatal(err)
	}
	return [2]int{other, fd}
}
