package evring_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
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

// BenchmarkPacked is the same for slots of a whole cache line, a half and a quarter.
func BenchmarkPacked(b *testing.B) {
	for _, by := range []int{batch, 1} {
		b.Run(fmt.Sprint(by), func(b *testing.B) {
			paired(b, 2*time.Millisecond,
				ringEvents(b, "ring", evring.Multi, by, 64),
				ringEvents(b, "ring32", evring.Multi, by, 32),
				ringEvents(b, "ring16", evring.Multi, by, 16))
		})
	}
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
