package claims

import (
	"context"
	"net"
	"runtime"
	"sync"

	"github.com/penstock/penstock/relay"
)

// idle is how many goroutines, and how many sessions, measureIdle has.
const (
	idleGoroutines = 10_000
	idleSessions   = 200
)

// measureIdle takes the memory of goroutines that wait for a channel, and of sessions that
// have carried a byte each way and wait for more. That is the memory live in the heap and on
// stacks after a collection, without the sockets themselves.
func measureIdle(ctx context.Context) (r Result, err error) {
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
	r.Figures = []Figure{
		{Name: "64 MiB / 1,000,000", Unit: Bytes, Value: 64 << 20 / 1e6},
		{Name: "a goroutine that waits", Unit: Bytes, Value: parked / idleGoroutines},
		{Name: "an idle session on goroutines", Unit: Bytes, Value: session},
	}
	return r, err
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

// ends are those of the two connections of a session.
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
