package claims

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/pool"
)

// The messages of measureHeaders: so many pass, so many of them are held at a
// time, in parts of up to so many bytes.
const (
	messages = 20_000
	inFlight = 64
	maxPart  = 64 << 10
)

// part is the array that a message consists of.
type part [maxPart]byte

// A messenger has a message of n bytes, and returns how many there would have been room for,
// and a function that gives it back.
type messenger struct {
	name string
	have func(n int) (room int, release func())
}

// measureHeaders lets messages of 1 B to 64 KiB pass: made each time, copied into
// arrays of 64 KiB from a sync.Pool, and as slice headers from one pool upon
// buffers of fitting sizes from another.
func measureHeaders(ctx context.Context) (r Result, err error) {
	buffers, err := newClasses()
	if err != nil {
		return r, err
	}
	headers, err := pool.New(pool.Config[[][]byte]{
		New:   func(context.Context) ([][]byte, error) { return make([][]byte, 0, 1), nil },
		Reset: func(h [][]byte) bool { clear(h[:cap(h)]); return true },
	})
	if err != nil {
		return r, err
	}
	defer headers.Close()
	var fails failure
	var arrays sync.Pool
	for _, m := range []messenger{
		{"made", haveMade},
		{"arrays", func(n int) (int, func()) { return haveArray(&arrays, n) }},
		{"headers", func(n int) (int, func()) { return haveHeaders(headers, buffers, n, &fails) }},
	} {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		r = append(r, m.pass()...)
	}
	return r, fails.err()
}

// pass lets the messages pass three times and reports the work of the collector.
func (m *messenger) pass() []Figure {
	var collections, allocated report.Sample
	var unfilled float64
	for range 3 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		unfilled = m.send()
		runtime.ReadMemStats(&after)
		collections = append(collections, float64(after.NumGC-before.NumGC))
		allocated = append(allocated, float64(after.TotalAlloc-before.TotalAlloc))
	}
	return of(m.name,
		Figure{Name: "collections", Unit: Number, Value: collections.Median()},
		Figure{Name: "allocated", Unit: Bytes, Value: allocated.Median()},
		Figure{Name: "not filled", Unit: Percent, Value: 100 * unfilled},
	)
}

// send has messages of the same sizes every time, and returns which part of the
// room they did not fill.
func (m *messenger) send() (unfilled float64) {
	sizes := rand.New(rand.NewPCG(1, 2))
	var held [inFlight]func()
	var filled, rooms int
	for i := range messages {
		slot := &held[i%inFlight]
		if *slot != nil {
			(*slot)()
		}
		n, room := 1+sizes.IntN(maxPart), 0
		room, *slot = m.have(n)
		filled, rooms = filled+n, rooms+room
	}
	for _, release := range held {
		release()
	}
	return 1 - float64(filled)/float64(rooms)
}

// payload is the content of messages.
var payload part

func haveMade(n int) (int, func()) {
	b := append([]byte(nil), payload[:n]...) // its capacity is the whole size class of the allocator
	return cap(b), func() { runtime.KeepAlive(b) }
}

func haveArray(idle *sync.Pool, n int) (int, func()) {
	a, _ := idle.Get().(*part)
	if a == nil {
		a = new(part)
	}
	copy(a[:n], payload[:n])
	return len(a), func() { idle.Put(a) }
}

// classes are pools of buffers, each of twice the size of the one before.
type classes [17]*pool.Pool[[]byte]

func newClasses() (c classes, err error) {
	for i := range c {
		make := func(context.Context) ([]byte, error) { return make([]byte, 1<<i), nil }
		if c[i], err = pool.New(pool.Config[[]byte]{New: make}); err != nil {
			return c, err
		}
	}
	return c, nil
}

func haveHeaders(headers *pool.Pool[[][]byte], buffers classes, n int, fails *failure) (int, func()) {
	class := buffers[bits.Len(uint(n-1))]
	b, err := class.Get(context.Background())
	fails.note(err)
	h, err := headers.Get(context.Background())
	fails.note(err)
	copy(b, payload[:n])
	h = append(h[:0], b)
	return cap(b), func() {
		class.Put(h[0])
		headers.Put(h)
	}
}
