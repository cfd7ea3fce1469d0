package relay_test

import (
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/relay"
)

// busyPairs are the numbers of busy sessions at which an unprivileged user's pipe
// quota matters: 64 MiB is 64 pipes of 1 MiB, which io.Copy spends on 32 joined
// pairs, and 1,024 pipes of 64 KiB.
var busyPairs = []int{32, 64, 1100}

// TestBusyPairs: as an ordinary user, all directions hold bytes at once because
// nobody reads. No pipe is made that the kernel degrades, those that get no pipe
// copy and say so, and every byte arrives.
func TestBusyPairs(t *testing.T) {
	t.Parallel()

	for _, pairs := range busyPairs {
		t.Run(fmt.Sprint(pairs), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) {
				if privilege.Alone(t) {
					testBusyPairs(t, d, pairs)
				}
			})
		})
	}
}

func testBusyPairs(t *testing.T, d *driving, pairs int) {
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	rigs := make([]*rig, pairs)
	sent := make([]int64, pairs)
	for i := range rigs {
		rigs[i] = d.newRig(t, r, smallTCP, smallTCP)
		_ = rigs[i].A.SetDeadline(time.Now().Add(10 * patience)) // a gigabyte in all
		_ = rigs[i].B.SetDeadline(time.Now().Add(10 * patience))
	}
	buffers := fillAll(t, d, r, rigs, sent)
	var wg sync.WaitGroup
	for i, g := range rigs {
		wg.Go(func() {
			g.A.CloseWrite()
			g.B.CloseWrite()
			if _, n, err := receive(g.B); n != sent[i] || err != nil {
				t.Errorf("got %d of %d bytes, error %v", n, sent[i], err)
			}
		})
	}
	wg.Wait()
	fell := int64(0)
	for i, g := range rigs {
		res := g.checkClean(int(sent[i]), 0)
		fell += min(1, res.AToB.Fallbacks[relay.FallbackBudget])
	}
	s := r.Stats().Pipes
	if s.Degraded != 0 || s.Refused != 0 || fell < buffers {
		t.Errorf("%d fell back to copying, %d held buffers; %+v", fell, buffers, s)
	}
}

// fillStart is where in the filler the bytes of the i-th rig begin, lest they all have
// the same.
func fillStart(i int) int64 { return int64(i) * 10_007 }

// fillAll fills every rig's way from A to B, until each holds a lease, and returns
// how many of these are buffers.
func fillAll(t *testing.T, d *driving, r *relay.Relay, rigs []*rig, sent []int64) int64 {
	t.Helper()
	var pipes, buffers int64
	for range 20 {
		var wg sync.WaitGroup
		for i, g := range rigs {
			wg.Go(func() { sent[i] += fillFrom(t, g.A, fillStart(i)+sent[i]) })
		}
		wg.Wait()
		if pipes, buffers = d.holds(t, r); pipes+buffers == int64(len(rigs)) {
			return buffers
		}
	}
	t.Fatalf("%d blocked pairs hold %d pipes and %d buffers", len(rigs), pipes, buffers)
	panic("unreachable")
}

// BenchmarkBusyPairs moves 256 KiB through each of many joined pairs at once, over
// and over. Run it as an ordinary user to see what the pipe quota does: io.Copy's
// pipes degrade at the 33rd pair.
func BenchmarkBusyPairs(b *testing.B) {
	if os.Getuid() == 0 {
		b.Log("root has no pipe quota: run the test binary as an ordinary user")
	}
	all := joiners(b)
	for _, pairs := range busyPairs {
		for _, name := range []string{"io.Copy", "relay-auto"} {
			b.Run(fmt.Sprintf("%d/%s", pairs, name), func(b *testing.B) { benchmarkBusy(b, all[name], pairs) })
		}
	}
}

func benchmarkBusy(b *testing.B, j joiner, pairs int) {
	const chunk = 256 << 10
	block := make([]byte, chunk)
	var wg, readers sync.WaitGroup
	starts := make([]chan int, pairs)
	var ends []func()
	for i := range starts {
		starts[i] = make(chan int)
		A, B, wait := joined(b, j)
		ends = append(ends, wait)
		readers.Go(func() {
			if n, err := io.Copy(io.Discard, struct{ io.Reader }{B}); n != int64(b.N)*chunk || err != nil {
				b.Errorf("received %d bytes, error %v", n, err)
			}
		})
		wg.Go(func() {
			for range <-starts[i] {
				if _, err := A.Write(block); err != nil {
					b.Error(err)
				}
			}
			_ = A.CloseWrite()
		})
	}
	b.SetBytes(int64(chunk * pairs))
	b.ResetTimer()
	for _, s := range starts {
		s <- b.N
	}
	wg.Wait()
	readers.Wait()
	b.StopTimer()
	for _, wait := range ends {
		wait()
	}
}
