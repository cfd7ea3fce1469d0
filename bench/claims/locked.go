package claims

import (
	"runtime"
	"sync"
	_ "unsafe" // for go:linkname
)

// item is the item of the pools of pooling: two cache lines, so that items in different hands
// never share one.
type item [128]byte

// locked has the shape of sync.Pool before Go 1.13: for each P a private place that needs no
// lock and a slice under a mutex, from which the other Ps steal. Its methods have the
// signatures of sync.Pool's, so that a comparison with today's is one of the shapes alone. No
// collection empties it.
type locked struct {
	local []shard
	new   func() any
}

type shard struct {
	private any // owner only, pinned
	mu      sync.Mutex
	shared  []any
	_       [128]byte
}

func newLocked(new_ func() any) *locked {
	return &locked{make([]shard, runtime.GOMAXPROCS(0)), new_}
}

// While a goroutine is pinned it is neither moved to another P nor stopped, so it
// must not block. Package pool says why both may be used.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// pin pins the goroutine and returns its P's shard. It is a call, as it was in
// sync.Pool and is.
//
//go:noinline
func (c *locked) pin() (*shard, int) {
	p := procPin()
	return &c.local[p], p
}

func (c *locked) get() any {
	l, p := c.pin()
	x := l.private
	l.private = nil
	procUnpin()
	if x != nil {
		return x
	}
	for i := range c.local { // its own first
		if x := c.local[(p+i)%len(c.local)].pop(); x != nil {
			return x
		}
	}
	return c.new()
}

func (l *shard) pop() (x any) {
	l.mu.Lock()
	if n := len(l.shared); n > 0 {
		x, l.shared[n-1] = l.shared[n-1], nil
		l.shared = l.shared[:n-1]
	}
	l.mu.Unlock()
	return x
}

func (c *locked) put(x any) {
	l, _ := c.pin()
	if l.private == nil {
		l.private, x = x, nil
	}
	procUnpin()
	if x != nil {
		l.mu.Lock()
		l.shared = append(l.shared, x)
		l.mu.Unlock()
	}
}
