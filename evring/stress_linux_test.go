package evring_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/evring"
)

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
			readable := poll.wait(map[bool]int{true: 10_000, false: 0}[mayBlock])
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
