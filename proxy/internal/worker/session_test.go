package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A tie is a binding that keeps the notified ends.
type tie struct {
	upstream, endpoint string
	mu                 sync.Mutex
	results            []relay.Result
	errs               []error
}

func (b *tie) Moved(worker.Bytes)      {}
func (b *tie) Watch(relay.Turn, int64) {}

func (b *tie) Ended(_ int, r relay.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results, b.errs = append(b.results, r), append(b.errs, err)
}

func (b *tie) Names() (upstream, endpoint string) { return b.upstream, b.endpoint }

func (b *tie) ended() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.results)
}

func (b *tie) all() []relay.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.results
}

// bound has a director's sessions bound to each of the bindings in turn.
func (d *director) bound(to ...worker.Binding) *director {
	var all []*relay.Limits
	for _, b := range to {
		all = append(all, &relay.Limits{Of: b})
	}
	d.reached = func() (*relay.Limits, error) { return all[int(d.joined.Load())%len(all)], nil }
	return d
}

// The service's limits are those of sessions that have no others.
func TestLimitsOfTheService(t *testing.T) {
	t.Parallel()

	own, service := new(tie), new(tie)
	d := straight(echo(t))
	var turn atomic.Int64
	d.reached = func() (*relay.Limits, error) {
		if turn.Add(1) == 1 {
			return nil, nil
		}
		return &relay.Limits{Of: own}, nil
	}
	r, pass := clocked(t, d, func(_ *setup, s *worker.Service) {
		s.Limits = &relay.Limits{IdleTimeout: time.Second, Of: service}
	})
	idle, stays := r.dial(t), net.Conn(nil)
	talk(t, idle)
	stays = r.dial(t)
	talk(t, stays)
	pass(2 * time.Second)
	eventually(t, func() bool { return service.ended() == 1 })
	if got := service.results[0].Reason; got != relay.ReasonIdle {
		t.Errorf("it has ended by %v", got)
	}
	talk(t, stays)
}

// An endpoint that is not wanted any more when it is reached is left at once, and the
// search continues.
func TestReachedAndNotWanted(t *testing.T) {
	t.Parallel()

	ln, wanted := listenOn(t), echo(t)
	d := &director{next: func(_ *worker.Client, n int) worker.Step {
		if n == 1 {
			return connectTo(ln.Addr().String())
		}
		return connectTo(wanted)
	}}
	var turn atomic.Int64
	d.reached = func() (*relay.Limits, error) {
		if turn.Add(1) == 1 {
			return nil, errors.New("not wanted")
		}
		return nil, nil
	}
	r := directed(t, d, nil)
	r.serve(t)
	talk(t, r.dial(t))
	c := accept(t, ln)
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the endpoint that is not wanted gets %v", err)
	}
}

// Sessions that match are cut, and no other session is affected.
func TestCutMatching(t *testing.T) {
	t.Parallel()

	b := [2]*tie{{upstream: "u", endpoint: "a"}, {upstream: "u", endpoint: "b"}}
	r := directed(t, straight(echo(t)).bound(b[0], b[1]), func(c *setup, _ *worker.Service) { c.MaxConnections = 1000 })
	r.serve(t)
	var conns []net.Conn
	const clients = 300
	for range clients {
		conns = append(conns, r.dial(t))
		talk(t, conns[len(conns)-1])
	}
	listed := map[string]int{}
	for s := range r.Sessions(context.Background(), new(worker.Query)) {
		listed[s.Listener+" "+s.Upstream+" "+s.EndpointName]++
	}
	if listed["first u a"] != clients/2 || listed["first u b"] != clients/2 {
		t.Errorf("listed are %v", listed)
	}
	cause := errors.New("it went away")
	n := r.CutMatching(func(l *worker.Listening, binding worker.Binding) bool {
		return binding == b[0] && l.Service().Name == "first"
	}, cause)
	if n != clients/2 || b[0].ended() != clients/2 || b[1].ended() != 0 {
		t.Errorf("%d were cut, %d and %d have ended", n, b[0].ended(), b[1].ended())
	}
	if b[0].errs[0] != cause || b[0].results[0].Reason != relay.ReasonCanceled {
		t.Errorf("cut by %v, %v", b[0].errs[0], b[0].results[0].Reason)
	}
	alive := 0
	for _, c := range conns {
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			alive++
		}
	}
	if alive != clients/2 {
		t.Errorf("%d live on", alive)
	}
}

// A gauge is a tie that is a meter.
type gauge struct {
	tie
	mu    sync.Mutex
	moved worker.Bytes
	told  int
}

func (g *gauge) Moved(b worker.Bytes) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moved.Add(b)
	g.told++
}

func (g *gauge) all() worker.Bytes {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moved
}

// metered is all that was moved by binding, of sessions that have ended and of those that run.
func metered(g *worker.Group, gauges ...*gauge) (of []worker.Bytes, sum worker.Summary) {
	g.Metered(func(s worker.Summary, running map[worker.Binding]*worker.Bytes) {
		sum = s
		for _, b := range gauges {
			bytes := b.all()
			if more := running[b]; more != nil {
				bytes.Add(*more)
			}
			of = append(of, bytes)
		}
	})
	return of, sum
}

func total(b worker.Bytes) int64 {
	return b.ClientToEndpoint.Spliced + b.ClientToEndpoint.Copied + b.EndpointToClient.Spliced + b.EndpointToClient.Copied
}

// No answer has less than the one before, however sessions end meanwhile, and each is
// counted once. Some that stay have the walks take several turns.
func TestMeteredUnderLoad(t *testing.T) {
	t.Cleanup(worker.SetSlabSize(1))
	b := new(gauge)
	const stay = 100
	r := directed(t, straight(echo(t)).bound(b), func(c *setup, _ *worker.Service) { c.MaxConnections = stay + 100 })
	r.serve(t)
	for range stay {
		talk(t, r.dial(t))
	}
	var over atomic.Bool
	var asking, work sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for last := int64(0); !over.Load(); {
				got, sum := metered(r.Group, b)
				now := total(got[0])
				if all := total(worker.Bytes{ClientToEndpoint: sum.Totals.ClientToEndpoint, EndpointToClient: sum.Totals.EndpointToClient}); now < last || now != all {
					t.Errorf("%d bytes after %d, and %d in all", now, last, all)
					return
				}
				last = now
			}
		})
	}
	const clients, each = 6, 300
	for range clients {
		work.Go(func() {
			for range each {
				if err := r.hello(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	over.Store(true)
	asking.Wait()
	eventually(t, func() bool { return r.Active() == stay })
	if got, want := total(b.all()), int64(clients*each*2*5); got != want {
		t.Errorf("the meter was given %d bytes, want %d", got, want)
	}
}

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

// attempts is how often a request may be made until its parts are short: the machine or the collector may take
// the time of one, those that are too long by their own work are so each time.
const attempts = 3

// holds makes a request until its parts hold their bound, and fails the test where they never do.
func (m *partMeter) holds(t testing.TB, of string, request func()) {
	t.Helper()
	var err error
	for range attempts {
		began := time.Now()
		request()
		if err = m.exceeded(t, of, time.Since(began)); err == nil {
			return
		}
		t.Log(err)
	}
	t.Errorf("each of %d times: %v", attempts, err)
}

// exceeded returns which bound the parts since the last call have not held, and logs them.
func (m *partMeter) exceeded(t testing.TB, of string, took time.Duration) error {
	t.Helper()
	over := m.overruns() // asks the loops, which may wait for mu
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || len(m.spent) == 0 {
		t.Fatalf("%s: %d parts, %v", of, len(m.spent), m.err)
	}
	slices.Sort(m.spent)
	parts, turns, most := len(m.spent), over-m.before, m.spent[len(m.spent)-1]
	t.Logf("%s: %v in %d parts; CPU of one: half of them up to %v, 99 %% up to %v, all up to %v; %d turns took a millisecond", of, took.Round(time.Millisecond), parts, m.spent[parts/2], m.spent[parts*99/100], most, turns)
	m.before, m.spent = over, nil
	switch {
	case int(turns) > 2+parts/100 && !race.Enabled:
		return fmt.Errorf("%s: %d turns took a millisecond of CPU time", of, turns)
	case most > 10*turnBound:
		return fmt.Errorf("%s: a part took %v of CPU time, want less than %v", of, most, turnBound)
	}
	return nil
}

// TestManySessions: of 100,000 sessions, lists and the end of half of them take parts of less than a
// millisecond of CPU time. As many as there are descriptors for have sockets; of the others only the
// answers of the kernel are simulated.
func TestManySessions(t *testing.T) {
	const all, loops = 100_000, 2
	real := min(all, max(freeDescriptors(t)-1000, 0)/2)
	if testing.Short() || race.Enabled {
		real = min(real, 1000)
	}
	m := new(partMeter)
	r := newRig(t, func(c *setup) { c.Loops, c.MaxConnections, c.TurnCPU = loops, all, true })
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
	m.overruns = r.overruns
	r.Turn() // the turns that have made them are over, and counted if their threads were the same to the end
	m.before = m.overruns()
	list := func(of string, q *worker.Query, want func(n int) bool) (listed map[int][]worker.ID) {
		t.Helper()
		m.holds(t, of, func() {
			n := 0
			listed = make(map[int][]worker.ID)
			for s := range r.Sessions(t.Context(), q) {
				listed[s.Loop] = append(listed[s.Loop], s.ID)
				n++
			}
			if !want(n) {
				t.Errorf("%s: %d are listed", of, n)
			}
		})
		return listed
	}
	ids := list("all", new(worker.Query), func(n int) bool { return n >= all-loops && n <= all })
	for of, q := range map[string]*worker.Query{
		"another listener": {Listener: "none"}, "another source": {Source: source.Prefix(netip.MustParsePrefix("10.0.0.0/8"))},
		"another endpoint": {Endpoint: "192.0.2.1:1"}, "older": {Older: time.Hour}, "more bytes": {Bytes: 1 << 40},
	} {
		list(of, q, func(n int) bool { return n == 0 })
	}
	list("with samples", &worker.Query{Source: source.Prefix(netip.MustParsePrefix("127.0.0.0/8")), Sample: true}, func(n int) bool { return n == real })
	m.holds(t, "eight lists at once", func() {
		var lists sync.WaitGroup
		for range 8 {
			lists.Go(func() {
				for range r.Sessions(t.Context(), new(worker.Query)) {
				}
			})
		}
		lists.Wait()
	})
	ended := endHalf(t, m, r, ids)
	if left := int(r.Summary().Active); ended < real/2-loops || ended > real/2+loops || left != real-ended {
		t.Errorf("%d of %d were ended, %d are left", ended, real, left)
	}
}

// endHalf ends half of the sessions, a part of them at each attempt, and returns how many had sockets to close.
func endHalf(t *testing.T, m *partMeter, r *rig, ids map[int][]worker.ID) (ended int) {
	t.Helper()
	count := func(_ worker.ID, e worker.EndResult) {
		if e == worker.EndedNow {
			ended++
		}
	}
	done := 0
	end := func() {
		for _, of := range ids {
			var chosen []worker.ID
			for i := 2 * done; i < len(of); i += 2 * attempts {
				chosen = append(chosen, of[i])
			}
			if err := r.End(t.Context(), chosen, 0, count); err != nil {
				t.Fatal(err)
			}
		}
		done++
	}
	m.holds(t, "the end of a part of them", end)
	for done < attempts {
		end()
	}
	return ended
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
