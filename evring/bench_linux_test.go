package evring_test

import (
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
)

// batch is the number of events at a time where that is possible.
const batch = 64

func events(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = binary.NativeEndian.AppendUint64(nil, uint64(i))
	}
	return out
}

// BenchmarkEvents passes events of 8 bytes to a consumer on another thread that sleeps
// when it has none: through rings, by batches of 64 and one by one; by an eventfd
// written for each event, which carries no payload and may be read for many at once;
// through a channel with as many places; through a pipe, one write for each event and
// one for 64. Figures are per event, see paired.
func BenchmarkEvents(b *testing.B) {
	paired(b, 2*time.Millisecond,
		ringEvents(b, "ring", evring.Single, batch, 0),
		ringEvents(b, "ringmulti", evring.Multi, batch, 0),
		ringEvents(b, "ring1by1", evring.Single, 1, 0),
		ringEvents(b, "ringmulti1by1", evring.Multi, 1, 0),
		eventfdEvents(b), channelEvents(),
		pipeEvents(b, "pipe", 1), pipeEvents(b, "pipe64", batch))
}

// BenchmarkTurns measures the cost of a ring alone: one goroutine pushes 64 events and
// drains them, no consumer sleeps and no cache line moves to another core.
func BenchmarkTurns(b *testing.B) {
	paired(b, time.Millisecond,
		ringTurns(b, "ring", evring.Single, batch),
		ringTurns(b, "ringmulti", evring.Multi, batch),
		ringTurns(b, "ring1by1", evring.Single, 1),
		ringTurns(b, "ringmulti1by1", evring.Multi, 1),
		eventfdTurns(b), channelTurns())
}

func ringTurns(b *testing.B, name string, p evring.Producers, batch int) contestant {
	r := newRing(b, &evring.Config{Producers: p})
	in := events(batch)
	return contestant{name, func(n int) time.Duration {
		start := time.Now()
		for got := 0; got < n; {
			for range 64 / batch {
				r.PushBatch(in)
			}
			k, _ := r.Drain(0, func([]byte) {})
			got += k
		}
		return time.Since(start)
	}}
}

func eventfdTurns(b *testing.B) contestant {
	fd := newEventfd(b)
	var one, sum [8]byte
	one[0] = 1
	return contestant{"eventfd", func(n int) time.Duration {
		start := time.Now()
		for i := range n {
			sys.Write(fd, one[:])
			if i%64 == 63 {
				sys.Read(fd, sum[:])
			}
		}
		return time.Since(start)
	}}
}

func channelTurns() contestant {
	c := make(chan uint64, evring.DefaultSlots)
	return contestant{"channel", func(n int) time.Duration {
		start := time.Now()
		for got := 0; got < n; got += 64 {
			for i := range uint64(64) {
				c <- i
			}
			for range 64 {
				<-c
			}
		}
		return time.Since(start)
	}}
}

// across runs a producer beside a consumer.
func across(produce, consume func(n int)) func(n int) time.Duration {
	return func(n int) time.Duration {
		done := make(chan struct{})
		start := time.Now()
		go func() {
			consume(n)
			close(done)
		}()
		produce(n)
		<-done
		return time.Since(start)
	}
}

// onThread gives a consumer a thread of its own, as a loop has.
func onThread(consume func(n int)) func(n int) {
	return func(n int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		consume(n)
	}
}

func ringEvents(b *testing.B, name string, p evring.Producers, batch, size int) contestant {
	r := newRing(b, &evring.Config{Producers: p, SlotSize: size})
	poll := newPoll(b, r.Eventfd())
	in := events(batch)
	return contestant{name, across(func(n int) {
		for n > 0 {
			k, _ := r.PushBatch(in[:min(n, batch)])
			if n -= k; k == 0 {
				runtime.Gosched()
			}
		}
	}, onThread(func(n int) {
		var sum uint64
		add := func(e []byte) { sum += binary.NativeEndian.Uint64(e) }
		for n > 0 {
			k, _ := r.Drain(0, add)
			if n -= k; k == 0 {
				sleep(r, poll, 1000)
			}
		}
	}))}
}

func newEventfd(b *testing.B) int {
	fd, err := sys.Eventfd()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { sys.Close(fd) })
	return fd
}

func eventfdEvents(b *testing.B) contestant {
	fd := newEventfd(b)
	poll := newPoll(b, fd)
	return contestant{"eventfd", across(func(n int) {
		one := binary.NativeEndian.AppendUint64(nil, 1)
		for range n {
			sys.Write(fd, one)
		}
	}, onThread(func(n int) {
		var buf [8]byte
		for n > 0 {
			if k, _ := sys.Read(fd, buf[:]); k == 0 {
				poll.wait(1000)
				continue
			}
			n -= int(binary.NativeEndian.Uint64(buf[:]))
		}
	}))}
}

func channelEvents() contestant {
	c := make(chan [8]byte, evring.DefaultSlots)
	return contestant{"channel", across(func(n int) {
		var e [8]byte
		for range n {
			c <- e
		}
	}, func(n int) {
		for range n {
			<-c
		}
	})}
}

// pipeEvents uses the runtime's poller, and a pipe that holds as many events as the
// ring does: 64 KiB.
func pipeEvents(b *testing.B, name string, batch int) contestant {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close(); w.Close() })
	in := make([]byte, 8*batch)
	return contestant{name, across(func(n int) {
		for n > 0 {
			k, _ := w.Write(in[:8*min(n, batch)])
			n -= k / 8
		}
	}, func(n int) {
		buf := make([]byte, 8*1024)
		for n *= 8; n > 0; {
			k, _ := r.Read(buf)
			n -= k
		}
	})}
}

// BenchmarkLatency is the time from before an event of 8 bytes is given until a consumer
// that slept has it. The event goes through a ring, or by an eventfd that is written for
// each, on which an epoll instance waits on a thread of the consumer's own. For
// comparison it goes through a channel and a pipe, between goroutines. "et" are those
// whose epoll is edge-triggered, so that the eventfd is never read; with the others both
// read it. Between two events the producer waits for as long as the consumer may take to
// go back to sleep. A round is 16 events each, its figure their median.
func BenchmarkLatency(b *testing.B) {
	paired(b, 0,
		ringLatency(b, "ring", evring.Multi, sys.EPOLLIN),
		eventfdLatency(b, "eventfd", sys.EPOLLIN),
		ringLatency(b, "ringet", evring.Multi, sys.EPOLLIN|sys.EPOLLET),
		eventfdLatency(b, "eventfdet", sys.EPOLLIN|sys.EPOLLET),
		channelLatency(), pipeLatency(b))
}

// arrivals has the times at which a consumer got its events.
type arrivals struct {
	begin time.Time
	at    atomic.Int64 // since begin; 0: not yet
}

// oneWay runs a consumer, whose receive takes n events, beside a producer that gives
// them. It returns n times the median of the times that they took.
func oneWay(name string, give func(), receive func(n int, got func())) contestant {
	return contestant{name, func(n int) time.Duration {
		a := arrivals{begin: time.Now()}
		done := make(chan struct{})
		go func() {
			receive(n, func() { a.at.Store(int64(time.Since(a.begin))) })
			close(done)
		}()
		took := make([]float64, n)
		for i := range took {
			pause := syscall.NsecToTimespec(50_000)
			syscall.Nanosleep(&pause, nil)
			took[i] = a.time(give)
		}
		<-done
		return time.Duration(quantile(took, 0.5)) * time.Duration(n)
	}}
}

func (a *arrivals) time(give func()) float64 {
	a.at.Store(0)
	start := time.Since(a.begin)
	give()
	for a.at.Load() == 0 {
		runtime.Gosched()
	}
	return float64(a.at.Load() - int64(start))
}

func ringLatency(b *testing.B, name string, p evring.Producers, mask uint32) contestant {
	r := newRing(b, &evring.Config{Producers: p})
	poll := newPollOf(b, r.Eventfd(), mask)
	e := make([]byte, 8)
	return oneWay(name, func() { r.Push(e) }, func(n int, got func()) {
		onThread(func(n int) {
			for n > 0 {
				k, _ := r.Drain(0, func([]byte) { got() })
				if n -= k; k == 0 {
					mayBlock := r.Sleep()
					readable := mayBlock && poll.wait(1000)
					r.Awake(readable && mask&sys.EPOLLET == 0)
				}
			}
		})(n)
	})
}

func eventfdLatency(b *testing.B, name string, mask uint32) contestant {
	fd := newEventfd(b)
	poll := newPollOf(b, fd, mask)
	one := [8]byte{1}
	var count [8]byte
	return oneWay(name, func() { sys.Write(fd, one[:]) }, func(n int, got func()) {
		onThread(func(n int) {
			for n > 0 {
				if !poll.wait(1000) {
					continue
				}
				if mask&sys.EPOLLET == 0 {
					sys.Read(fd, count[:])
				}
				got()
				n--
			}
		})(n)
	})
}

func channelLatency() contestant {
	c := make(chan [8]byte, evring.DefaultSlots)
	return oneWay("channel", func() { c <- [8]byte{} }, func(n int, got func()) {
		for range n {
			<-c
			got()
		}
	})
}

func pipeLatency(b *testing.B) contestant {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close(); w.Close() })
	in, out := make([]byte, 8), make([]byte, 8)
	return oneWay("pipe", func() { w.Write(in) }, func(n int, got func()) {
		for range n {
			r.Read(out)
			got()
		}
	})
}

// contestant passes n events and returns the time taken.
type contestant struct {
	name string
	run  func(n int) time.Duration
}

// paired lets contestants run by turns, one round for each of the benchmark's
// iterations, each of about a slice, and reports their medians in nanoseconds per event
// and for every pair of the first and a rival the median of the rounds' ratios, rival's
// time to the first one's, and as spread the 10th and the 90th percentile.
func paired(b *testing.B, slice time.Duration, all ...contestant) {
	n := make([]int, len(all))
	for i, c := range all {
		n[i] = calibrate(c, slice)
	}
	took := make([][]float64, len(all)) // ns per event of each round
	round := 0
	for b.Loop() {
		for i := range all {
			k := (i + round) % len(all) // none always follows the same one
			took[k] = append(took[k], float64(all[k].run(n[k]))/float64(n[k]))
		}
		round++
	}
	b.ReportMetric(0, "ns/op") // of a round: meaningless
	for i, c := range all {
		b.ReportMetric(quantile(took[i], 0.5), c.name+"-ns")
		if i == 0 {
			continue
		}
		ratios := make([]float64, round)
		for r := range ratios {
			ratios[r] = took[i][r] / took[0][r]
		}
		b.ReportMetric(quantile(ratios, 0.5), "x-"+c.name)
		b.ReportMetric(quantile(ratios, 0.1), "x-p10-"+c.name)
		b.ReportMetric(quantile(ratios, 0.9), "x-p90-"+c.name)
	}
}

// calibrate finds how many events fill a slice of time, 16 for a slice of 0. It believes the fastest of
// some runs: others were disturbed.
func calibrate(c contestant, slice time.Duration) int {
	if slice == 0 {
		return 16
	}
	for n := 64; ; n *= 2 {
		start := time.Now()
		c.run(n)
		d := min(time.Since(start), c.run(n), c.run(n))
		if d >= slice/2 || time.Since(start) > 4*slice {
			return max(64, int(float64(n)*float64(slice)/float64(max(d, slice/8))))
		}
	}
}

func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+0.5)]
}
