package evring_test

import (
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
)

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

// BenchmarkLatencyET is BenchmarkLatency of the edge-triggered ones.
func BenchmarkLatencyET(b *testing.B) {
	paired(b, 0,
		ringLatency(b, "ringet", evring.Multi, sys.EPOLLIN|sys.EPOLLET),
		ringLatency(b, "ringsingleet", evring.Single, sys.EPOLLIN|sys.EPOLLET),
		eventfdLatency(b, "eventfdet", sys.EPOLLIN|sys.EPOLLET),
		eventfdLatency(b, "eventfd", sys.EPOLLIN))
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
