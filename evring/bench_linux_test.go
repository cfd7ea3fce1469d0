package evring_test

import (
	"encoding/binary"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/paired"
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
// when it has none: through rings, by batches of 64; through a channel with as many
// places; through a pipe, 64 with each write. Figures are per event, see [paired.Run].
func BenchmarkEvents(b *testing.B) {
	paired.Run(b, 2*time.Millisecond,
		ringEvents(b, "ring", evring.Single), ringEvents(b, "ringmulti", evring.Multi),
		channelEvents(), pipeEvents(b))
}

// BenchmarkTurns measures the cost of a ring alone: one goroutine pushes 64 events and
// drains them, no consumer sleeps and no cache line moves to another core.
func BenchmarkTurns(b *testing.B) {
	paired.Run(b, time.Millisecond,
		ringTurns(b, "ring", evring.Single, batch),
		ringTurns(b, "ringmulti", evring.Multi, batch),
		ringTurns(b, "ring1by1", evring.Single, 1),
		ringTurns(b, "ringmulti1by1", evring.Multi, 1),
		eventfdTurns(b), channelTurns())
}

func ringTurns(b *testing.B, name string, p evring.Producers, batch int) paired.Contestant {
	r := newRing(b, &evring.Config{Producers: p})
	in := events(batch)
	return paired.Contestant{Name: name, Run: func(n int) time.Duration {
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

func eventfdTurns(b *testing.B) paired.Contestant {
	fd := newEventfd(b)
	var one, sum [8]byte
	one[0] = 1
	return paired.Contestant{Name: "eventfd", Run: func(n int) time.Duration {
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

func channelTurns() paired.Contestant {
	c := make(chan uint64, evring.DefaultSlots)
	return paired.Contestant{Name: "channel", Run: func(n int) time.Duration {
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

func ringEvents(b *testing.B, name string, p evring.Producers) paired.Contestant {
	r := newRing(b, &evring.Config{Producers: p})
	poll := newPoll(b, r.Eventfd())
	in := events(batch)
	return paired.Contestant{Name: name, Run: across(func(n int) {
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

func channelEvents() paired.Contestant {
	c := make(chan [8]byte, evring.DefaultSlots)
	return paired.Contestant{Name: "channel", Run: across(func(n int) {
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
func pipeEvents(b *testing.B) paired.Contestant {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close(); w.Close() })
	in := make([]byte, 8*batch)
	return paired.Contestant{Name: "pipe64", Run: across(func(n int) {
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
// each, on which an epoll instance waits on a thread of the consumer's own. Between two
// events the producer waits for as long as the consumer may take to go back to sleep. A
// round is 16 events each, its figure their median.
func BenchmarkLatency(b *testing.B) {
	paired.Run(b, 0, ringLatency(b), eventfdLatency(b))
}

// arrivals has the times at which a consumer got its events.
type arrivals struct {
	begin time.Time
	at    atomic.Int64 // since begin; 0: not yet
}

// oneWay runs a consumer, whose receive takes n events, beside a producer that gives
// them. It returns the median of the times that 16 of them took.
func oneWay(name string, give func(), receive func(n int, got func())) paired.Contestant {
	return paired.Contestant{Name: name, Run: func(int) time.Duration {
		const n = 16
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
		return time.Duration(paired.Quantile(took, 0.5))
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

func ringLatency(b *testing.B) paired.Contestant {
	r := newRing(b, nil)
	poll := newPoll(b, r.Eventfd())
	e := make([]byte, 8)
	return oneWay("ring", func() { r.Push(e) }, func(n int, got func()) {
		onThread(func(n int) {
			for n > 0 {
				k, _ := r.Drain(0, func([]byte) { got() })
				if n -= k; k == 0 {
					sleep(r, poll, 1000)
				}
			}
		})(n)
	})
}

func eventfdLatency(b *testing.B) paired.Contestant {
	fd := newEventfd(b)
	poll := newPoll(b, fd)
	one := [8]byte{1}
	var count [8]byte
	return oneWay("eventfd", func() { sys.Write(fd, one[:]) }, func(n int, got func()) {
		onThread(func(n int) {
			for n > 0 {
				if !poll.wait(1000) {
					continue
				}
				sys.Read(fd, count[:])
				got()
				n--
			}
		})(n)
	})
}
