package claims

import (
	"context"
	"net"
	"runtime"
	"sync"

	"github.com/penstock/penstock/relay"
)

// idleGoroutines is how many goroutines, and idleSessions how many sessions on goroutines, measureIdle has.
const (
	idleGoroutines = 10_000
	idleSessions   = 200
)

// measureMillion has a million idle sessions on a loop.
func measureMillion(ctx context.Context) (Result, error) { return measureIdle(ctx, 1_000_000) }

// measureIdle takes the memory of goroutines that wait for a channel, of sessions on goroutines that have carried a byte each way and
// wait for more, and of n sessions on a loop. That is the memory live in the heap and on stacks after a collection, without the sockets
// themselves. Then messages pass by sessions on the loop, and by goroutines that have a buffer each.
func measureIdle(ctx context.Context, n int) (r Result, err error) {
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	stop := make(chan struct{})
	var waiting sync.WaitGroup
	parked := grown(func() {
		for range idleGoroutines {
			waiting.Go(func() { <-stop })
		}
	})
	close(stop)
	waiting.Wait()
	session, err := idleSession(ctx)
	if err != nil {
		return r, err
	}
	r = Result{
		{Name: "64 MiB / 1,000,000", Unit: Bytes, Value: 64 << 20 / 1e6},
		{Name: "a goroutine that waits", Unit: Bytes, Value: parked / idleGoroutines},
		{Name: "an idle session on goroutines", Unit: Bytes, Value: session},
	}
	for _, m := range []struct {
		name string
		make func(n int) (population, error)
		n    int
	}{
		{"sessions on a loop", newCrowd, n},
		{"two goroutines with 32 KiB each", newPumps, min(n, idleGoroutines)},
	} {
		figures, err := crowded(ctx, m.name, m.make, m.n)
		if err != nil {
			return r, err
		}
		r = append(r, figures...)
	}
	return r, nil
}

// grown returns the bytes that are live after f and were not before.
func grown(f func()) float64 {
	before := live()
	f()
	return live() - before
}

// live returns the bytes that the program lives on, its stacks included.
func live() float64 {
	runtime.GC()
	runtime.GC() // objects that the first has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// idleSession returns the bytes that a session takes.
func idleSession(ctx context.Context) (bytes float64, err error) {
	rl, err := relay.New(nil)
	if err != nil {
		return 0, err
	}
	defer rl.Close()
	ends := make([]ends, idleSessions)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		running.Wait()
		for i := range ends {
			ends[i].close()
		}
	}()
	for i := range ends {
		if err := ends[i].open(); err != nil {
			return 0, err
		}
	}
	bytes = grown(func() {
		for i := range ends {
			running.Go(func() { _, _ = rl.Join(ctx, ends[i].near, ends[i].upper) })
			if e := ends[i].exchange(); e != nil {
				err = e
			}
		}
	})
	return bytes / idleSessions, err
}

// ends are the ends of a session's two connections.
type ends struct{ client, near, upper, server *net.TCPConn }

func (e *ends) open() (err error) {
	if e.client, e.near, err = connection(); err != nil {
		return err
	}
	e.upper, e.server, err = connection()
	return err
}

// exchange sends a byte through the session each way.
func (e *ends) exchange() error {
	b := []byte{1}
	for _, way := range [][2]*net.TCPConn{{e.client, e.server}, {e.server, e.client}} {
		if _, err := way[0].Write(b); err != nil {
			return err
		}
		if _, err := way[1].Read(b); err != nil {
			return err
		}
	}
	return nil
}

func (e *ends) close() {
	for _, c := range []*net.TCPConn{e.client, e.near, e.upper, e.server} {
		if c != nil {
			c.Close()
		}
	}
}
