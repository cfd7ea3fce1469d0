package evring_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/internal/testutil/zero"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) {
	if os.Args[0] == childName {
		os.Exit(child(os.Args[1]))
	}
	leak.Main(m)
}

func newRing(t testing.TB, cfg *evring.Config) *evring.Ring {
	t.Helper()
	r := must.Get(evring.New(cfg))(t)
	t.Cleanup(func() { r.Close() })
	return r
}

// poll waits for a descriptor by an epoll instance of its own, as a loop does.
type poll struct {
	epfd   int // owned
	events [1]sys.EpollEvent
}

func newPoll(t testing.TB, fd int) *poll {
	t.Helper()
	return newPollOf(t, fd, sys.EPOLLIN)
}

func newPollOf(t testing.TB, fd int, mask uint32) *poll {
	t.Helper()
	p := must.Get(openPoll(fd, mask))(t)
	t.Cleanup(p.close)
	return p
}

func openPoll(fd int, mask uint32) (*poll, error) {
	epfd, err := sys.EpollCreate1()
	if err != nil {
		return nil, err
	}
	if err := sys.EpollCtl(epfd, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: mask, Fd: int32(fd)}); err != nil {
		sys.Close(epfd)
		return nil, err
	}
	return &poll{epfd: epfd}, nil
}

func (p *poll) close() { sys.Close(p.epfd) }

// wait reports whether the descriptor is readable within so many milliseconds.
func (p *poll) wait(msec int) bool {
	for {
		n, err := sys.EpollWait(p.epfd, p.events[:], msec)
		if err != syscall.EINTR {
			return n > 0
		}
	}
}

// sleep is a consumer's sleep, with all that belongs to it.
func sleep(r *evring.Ring, p *poll, msec int) {
	if !r.Sleep() {
		msec = 0
	}
	r.Awake(p.wait(msec))
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  evring.Config
		want string // in the error; empty: none
	}{
		{evring.Config{}, ""},
		{evring.Config{Slots: 1, SlotSize: 16}, ""},
		{evring.Config{Slots: 4, SlotSize: 192, Producers: evring.Single, Name: "mailbox"}, ""},
		{evring.Config{Slots: 1000}, "such as 1024"},
		{evring.Config{Slots: -1}, "such as 1"},
		{evring.Config{SlotSize: 100}, "such as 128"},
		{evring.Config{SlotSize: -3}, "such as 64"},
		{evring.Config{SlotSize: 24}, "write 16, 32"},
		{evring.Config{Slots: 1 << 30}, "256 MiB in all"},
		{evring.Config{Producers: 2}, "Single or Multi"},
	} {
		r, err := evring.New(&c.cfg)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q in it", c.cfg, err, c.want)
		}
		if r != nil {
			r.Close()
		}
	}
}

func TestLengths(t *testing.T) {
	r := newRing(t, &evring.Config{SlotSize: 128})
	long := bytes.Repeat([]byte("e"), r.EventSize())
	if n, err := r.PushBatch([][]byte{nil, long, append(long, 'x')}); n != 0 || err != evring.ErrTooLong {
		t.Errorf("pushed %d, %v; want none, ErrTooLong", n, err)
	}
	if n, err := r.PushBatch([][]byte{nil, long}); n != 2 || err != nil {
		t.Errorf("pushed %d, %v", n, err)
	}
	if got := drained(t, r); got != " "+string(long)+" " {
		t.Errorf("drained %q, want the empty event and the long one", got)
	}
}

// TestDrainPanic: an event counts as delivered before it is, but without a function for it it stays.
func TestDrainPanic(t *testing.T) {
	r := newRing(t, nil)
	r.PushBatch(events(3))
	if n, err := r.Drain(0, nil); n != 0 || !errors.Is(err, os.ErrInvalid) {
		t.Errorf("without a function: %d, %v", n, err)
	}
	func() {
		defer func() { recover() }()
		r.Drain(0, func(e []byte) {
			if e[0] == 1 || e[7] == 1 {
				panic("in the second one")
			}
		})
	}()
	var got []byte
	r.Drain(0, func(e []byte) { got = append(got, e[0]|e[7]) })
	if !bytes.Equal(got, []byte{2}) {
		t.Errorf("then drained %v, want event 2", got)
	}
}

func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, x/sys's read and write let their buffers escape")
	}
	r := newRing(t, nil)
	poll := newPoll(t, r.Eventfd())
	in := events(8)
	count := 0
	add := func([]byte) { count++ }
	if n := testing.AllocsPerRun(100, func() {
		sleepNow := r.Sleep()
		r.Push(in[0])
		r.Awake(sleepNow && poll.wait(0))
		r.PushBatch(in)
		r.Drain(0, add)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if count < 8 {
		t.Error("nothing was drained")
	}
}

// TestWakeOnlyWhenAsleep: the eventfd is written for a sleeper, once, and at no other
// time.
func TestWakeOnlyWhenAsleep(t *testing.T) {
	r := newRing(t, nil)
	poll := newPoll(t, r.Eventfd())
	r.Push(nil)
	if poll.wait(0) || r.Sleep() {
		t.Fatal("woken, or asleep, with an event in the ring")
	}
	drained(t, r)
	if !r.Sleep() {
		t.Fatal("no sleep in an empty ring")
	}
	r.Push(nil)
	r.Push(nil)
	var count [8]byte
	if n, err := sys.Read(r.Eventfd(), count[:]); n != 8 || err != nil || binary.NativeEndian.Uint64(count[:]) != 1 {
		t.Errorf("the eventfd has counted %v, %v; want 1", count, err)
	}
	r.Awake(false)
}

// TestLateWake: a producer that saw an earlier sleep's flag wakes the consumer for
// nothing, and leaves the flag of the present sleep up.
func TestLateWake(t *testing.T) {
	r := newRing(t, nil)
	poll := newPoll(t, r.Eventfd())
	r.Sleep()
	seen := r.Asleep()
	r.Awake(false)
	r.Sleep()
	r.Wake(seen)
	if r.Asleep() == 0 {
		t.Fatal("the flag is down, and the next event would wake no consumer")
	}
	r.Awake(poll.wait(1000))
	if poll.wait(0) {
		t.Error("the eventfd is still readable: a level-triggered consumer would spin")
	}
}

// TestEdgeTriggered: the eventfd need not be read, not even when another process has
// filled its counter.
func TestEdgeTriggered(t *testing.T) {
	r := newRing(t, nil)
	poll := newPollOf(t, r.Eventfd(), sys.EPOLLIN|sys.EPOLLET)
	for i := range 1000 {
		if i == 500 {
			fill := binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1-500)
			must.Get(sys.Write(r.Eventfd(), fill))(t)
			poll.wait(0)
		}
		r.Sleep()
		r.Push(nil)
		if !poll.wait(5000) {
			t.Fatalf("sleep %d was not woken", i)
		}
		r.Awake(false)
		drained(t, r)
	}
}

// TestClose: producers that run meanwhile get ErrClosed, and no descriptor of another
// file is written to.
func TestClose(t *testing.T) {
	for range 50 {
		r := must.Get(evring.New(nil))(t)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for r.Push(nil) == nil || !errors.Is(r.Err(), evring.ErrClosed) {
					runtime.Gosched()
				}
			})
		}
		r.Sleep()
		r.Drain(0, func([]byte) {})
		must.Do(t, r.Close())
		wg.Wait()
		runtime.GC() // no unmapping yet
		if _, err := r.Drain(0, nil); err != evring.ErrClosed {
			t.Fatalf("drain: %v, want ErrClosed", err)
		}
		r.Wake(1) // as one does that is late
		if _, _, err := r.Files(); !errors.Is(err, evring.ErrClosed) {
			t.Fatalf("files: %v, want ErrClosed", err)
		}
		must.Is(t, r.Close(), evring.ErrClosed)
	}
}

// TestNumberNotReused: Close leaves the descriptors to a wake-up that is under way.
func TestNumberNotReused(t *testing.T) {
	r := newRing(t, nil)
	m, e, err := r.Files()
	must.Do(t, err)
	defer m.Close()
	defer e.Close()
	if flags, err := sys.GetFl(int(e.Fd())); err != nil || flags&sys.O_NONBLOCK == 0 {
		t.Errorf("the duplicate has flags %#x, %v; want O_NONBLOCK", flags, err)
	}
	fd := r.Memfd()
	r.Close()
	if _, err := sys.GetFl(fd); err != syscall.EBADF {
		t.Errorf("memfd after Close: %v, want EBADF", err)
	}
}

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{}, new(evring.Ring))
}

// model is a ring and its expected content: the claims in their order, published or not.
type model struct {
	ring   *evring.Ring
	single bool
	claims []*claim // not wholly consumed
	next   byte
}

// claim is a push that has begun: its positions and its events.
type claim struct {
	pos       uint64
	events    [][]byte
	published bool
}

// TestModel: in any order of claims, publications, drains, with many producers
// anywhere in their pushes, the consumer gets the published events up to the first claim
// that is not published, in order. A push is refused only if there is no place.
func TestModel(t *testing.T) {
	t.Run("Multi", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkModel(t, evring.Multi) }) })
	t.Run("Single", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkModel(t, evring.Single) }) })
}

func checkModel(t *rapid.T, p evring.Producers) {
	r := must.Get(evring.New(&evring.Config{
		Slots:     rapid.SampledFrom([]int{1, 2, 8, 64}).Draw(t, "slots"),
		SlotSize:  rapid.SampledFrom([]int{16, 32, 64, 128}).Draw(t, "size"),
		Producers: p,
	}))(t)
	defer r.Close()
	m := &model{ring: r, single: p == evring.Single}
	t.Repeat(map[string]func(*rapid.T){
		"push":    m.push,
		"claim":   m.claim,
		"publish": m.publish,
		"drain":   m.drain,
		"sleep":   m.sleep,
	})
}

// used is how many positions are taken.
func (m *model) used() (n int) {
	for _, c := range m.claims {
		n += len(c.events)
	}
	return n
}

// pending returns the claims that are not published.
func (m *model) pending() (out []*claim) {
	for _, c := range m.claims {
		if !c.published {
			out = append(out, c)
		}
	}
	return out
}

// first returns the oldest event that is ready.
func (m *model) first() ([]byte, bool) {
	if len(m.claims) == 0 || !m.claims[0].published {
		return nil, false
	}
	return m.claims[0].events[0], true
}

func (m *model) drop() {
	c := m.claims[0]
	if c.events = c.events[1:]; len(c.events) == 0 {
		m.claims = m.claims[1:]
	}
}

func (m *model) batch(t *rapid.T) [][]byte {
	out := make([][]byte, rapid.IntRange(0, 5).Draw(t, "batch"))
	for i := range out {
		m.next++
		out[i] = bytes.Repeat([]byte{m.next}, rapid.IntRange(0, m.ring.EventSize()).Draw(t, "length"))
	}
	return out
}

// took checks how many events the ring has taken, and notes them.
func (m *model) took(t *rapid.T, c *claim, n int, err error) {
	want := min(len(c.events), m.ring.Slots()-m.used())
	if n != want || (err == evring.ErrFull) != (n < len(c.events)) || err != nil && err != evring.ErrFull {
		t.Fatalf("took %d of %d, %v; want %d", n, len(c.events), err, want)
	}
	if c.events = c.events[:n]; n > 0 {
		m.claims = append(m.claims, c)
	}
}

func (m *model) push(t *rapid.T) {
	if m.single && len(m.pending()) > 0 {
		t.Skip("the producer is busy")
	}
	c := &claim{events: m.batch(t), published: true}
	n, err := m.ring.PushBatch(c.events)
	m.took(t, c, n, err)
}

func (m *model) claim(t *rapid.T) {
	if m.single && len(m.pending()) > 0 {
		t.Skip("the producer is busy")
	}
	c := &claim{events: m.batch(t)}
	pos, n, err := m.ring.Claim(len(c.events))
	c.pos = pos
	m.took(t, c, n, err)
}

func (m *model) publish(t *rapid.T) {
	pending := m.pending()
	if len(pending) == 0 {
		t.Skip("nothing is claimed")
	}
	c := rapid.SampledFrom(pending).Draw(t, "claim")
	m.ring.Publish(c.pos, c.events)
	c.published = true
}

func (m *model) drain(t *rapid.T) {
	max := rapid.IntRange(0, 5).Draw(t, "max")
	n, err := m.ring.Drain(max, func(e []byte) {
		want, ok := m.first()
		if !ok || !bytes.Equal(e, want) {
			t.Fatalf("drained %v, want %v, %t", e, want, ok)
		}
		m.drop()
	})
	_, more := m.first()
	if err != nil || more && n != max {
		t.Fatalf("drained %d of at most %d, %v, and more was there: %t", n, max, err, more)
	}
}

func (m *model) sleep(t *rapid.T) {
	_, ready := m.first()
	if mayBlock := m.ring.Sleep(); mayBlock == ready {
		t.Fatalf("may block: %t, ready: %t", mayBlock, ready)
	}
	m.ring.Awake(false)
}

// TestStress: producers that push one or many, and a consumer that sleeps whenever it
// can. Each producer's events come once and in its order; a wake-up that is lost shows
// as a sleep that no event ends. On the heap the race detector checks the protocol.
func TestStress(t *testing.T) {
	for _, producers := range []int{1, 3} {
		for _, heap := range []bool{false, true} {
			t.Run(fmt.Sprintf("producers=%d/heap=%t", producers, heap), func(t *testing.T) {
				cfg := &evring.Config{Slots: 16, SlotSize: 32}
				if producers == 1 {
					cfg.Producers = evring.Single
				}
				r := newRing(t, cfg)
				if heap {
					r, _ = evring.NewOnHeap(cfg)
					t.Cleanup(func() { r.Close() })
				}
				each := 30_000
				if runtime.GOMAXPROCS(0) == 1 {
					// A consumer that waits keeps the only P until sysmon takes it,
					// which may be 10 ms for every sleep.
					each = 600
				}
				stress(t, r, producers, each)
			})
		}
	}
}

func stress(t *testing.T, r *evring.Ring, producers, each int) {
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() { produce(r, p, each) })
	}
	poll := newPoll(t, r.Eventfd())
	next := make([]uint64, producers)
	for got, start := 0, time.Now(); got < producers*each; {
		n, err := r.Drain(0, func(e []byte) {
			p, seq := e[0], binary.NativeEndian.Uint64(e[8:])
			if seq != next[p] {
				t.Errorf("producer %d: event %d, want %d", p, seq, next[p])
			}
			next[p] = seq + 1
		})
		if err != nil || t.Failed() {
			t.Fatal(err)
		}
		if got += n; n == 0 {
			mayBlock := r.Sleep()
			readable := poll.wait(map[bool]int{true: 60_000, false: 0}[mayBlock])
			if mayBlock && !readable {
				t.Fatalf("after %d events and %v: asleep, and no producer woke it", got, time.Since(start))
			}
			r.Awake(readable)
		}
	}
	wg.Wait()
}

// produce pushes batches of 1 to 4.
func produce(r *evring.Ring, p, each int) {
	batch := make([][]byte, 4)
	for i := range batch {
		batch[i] = make([]byte, 16)
		batch[i][0] = byte(p)
	}
	for seq := 0; seq < each; {
		n := min(1+seq%4, each-seq)
		for i := range n {
			binary.NativeEndian.PutUint64(batch[i][8:], uint64(seq+i))
		}
		k, _ := r.PushBatch(batch[:n])
		if seq += k; k == 0 || seq%64 < 4 {
			runtime.Gosched() // let the consumer sleep
		}
	}
}
