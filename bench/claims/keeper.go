package claims

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/pool"
)

// A keeper is a pool of items.
type keeper struct {
	name  string
	take  func(xs []*item)
	give  func(xs []*item)
	pairs func(n int)   // n times: take one, give it back
	made  *atomic.Int64 // items made so far
}

// locks is the pool of the shape that sync.Pool had before Go 1.13.
const locks = "locked"

// A factory makes items that take cost to make.
type factory struct {
	made atomic.Int64
	cost time.Duration
}

func (f *factory) item() *item {
	f.made.Add(1)
	if f.cost > 0 {
		time.Sleep(f.cost)
	}
	return new(item)
}

// The loops of the keepers are written out, so that the calls within them are as
// direct as in a program.

func newLockedKeeper(cost time.Duration) keeper {
	f := &factory{cost: cost}
	c := newLocked(func() any { return f.item() })
	return keeper{
		name: locks, made: &f.made,
		take: func(xs []*item) {
			for i := range xs {
				xs[i] = c.get().(*item)
			}
		},
		give: func(xs []*item) {
			for _, x := range xs {
				c.put(x)
			}
		},
		pairs: func(n int) {
			for range n {
				c.put(c.get().(*item))
			}
		},
	}
}

func newSyncKeeper(cost time.Duration) keeper {
	f := &factory{cost: cost}
	c := &sync.Pool{New: func() any { return f.item() }}
	return keeper{
		name: syncPool, made: &f.made,
		take: func(xs []*item) {
			for i := range xs {
				xs[i] = c.Get().(*item)
			}
		},
		give: func(xs []*item) {
			for _, x := range xs {
				c.Put(x)
			}
		},
		pairs: func(n int) {
			for range n {
				c.Put(c.Get().(*item))
			}
		},
	}
}

// newPenstockKeeper returns a keeper with a pool of memory only, without a ticker: it may be
// forgotten. Its Get cannot fail, for making an item cannot.
func newPenstockKeeper(cost time.Duration, maxIdle int) (keeper, error) {
	f := &factory{cost: cost}
	c, err := pool.New(pool.Config[*item]{
		New: func(context.Context) (*item, error) { return f.item(), nil }, MaxIdle: maxIdle,
	})
	return keeper{
		name: penstock, made: &f.made,
		take: func(xs []*item) {
			for i := range xs {
				xs[i], _ = c.Get(context.Background())
			}
		},
		give: func(xs []*item) {
			for _, x := range xs {
				c.Put(x)
			}
		},
		pairs: func(n int) {
			for range n {
				x, _ := c.Get(context.Background())
				c.Put(x)
			}
		},
	}, err
}

// plainSlice is the store of a program without any pool.
const plainSlice = "a slice"

func newSliceKeeper() keeper {
	var kept []*item
	return keeper{
		name: plainSlice,
		take: func(xs []*item) {
			for i := range xs {
				xs[i] = new(item)
			}
		},
		give: func(xs []*item) { kept = append(kept, xs...) },
	}
}

// keepers returns the three, with room for maxIdle items at least.
func keepers(cost time.Duration, maxIdle int) ([]keeper, error) {
	ours, err := newPenstockKeeper(cost, maxIdle)
	return []keeper{newLockedKeeper(cost), newSyncKeeper(cost), ours}, err
}
