package pipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/pool"
)

// classOf returns the class of the smallest pipes that have size bytes.
func (pl *Pool) classOf(size int) int {
	if size <= 0 {
		size = pl.cfg.Size
	}
	if size <= pl.classes[0].size {
		return 0
	}
	return min(bits.Len(uint(size-1))-pl.shift, len(pl.classes)-1)
}

// getNew is Get without an idle pipe of class k in reach.
func (pl *Pool) getNew(k int) (*Pipe, error) {
	if pl.closed.Load() {
		return nil, ErrClosed
	}
	if err := feature.Splice(); err != nil && errors.Is(err, ErrNotSupported) {
		return nil, err
	}
	for range attempts {
		if !pl.reserve(k) {
			break
		}
		p, err := pl.openOrTrim(k)
		switch {
		case err == nil:
			return p, nil
		case !errors.Is(err, errDegraded) && !errors.Is(err, errRefused):
			return nil, fmt.Errorf("penstock: pipe: get: %w", cmp.Or(errors.Unwrap(err), err)) // without the words of package pool
		}
		// The limit has come down; closing idle pipes of another size may help.
	}
	pl.denied.Add(1)
	return nil, ErrBudget
}

// attempts bounds how often one Get asks the kernel: each refusal lowers the limit to the
// pages in use, so that another attempt is only made after idle pipes have been closed for it.
const attempts = 3

var (
	errDegraded = errors.New("the kernel gave less than its default size")
	errRefused  = errors.New("the kernel would not make the pipe larger")
)

func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// reserve takes the cost of a pipe of class k, if need be from idle pipes.
func (pl *Pool) reserve(k int) bool {
	c := pl.classes[k].charge
	for !pl.budget.take(c) {
		if !pl.yieldLarger(k) {
			return pl.recall(pl.budget.lacks(c)) && pl.budget.take(c)
		}
	}
	return true
}

// yieldLarger closes an idle pipe of a larger class than k.
func (pl *Pool) yieldLarger(k int) bool {
	for j := len(pl.classes) - 1; j > k; j-- {
		idle := pl.classes[j].idle.Load()
		if idle == nil {
			continue
		}
		pl.taken.Add(1) // before it becomes a hit: see Stats
		if p, ok := idle.TryGet(); ok {
			pl.yield.Add(1)
			idle.Discard(p)
			return true
		}
		pl.taken.Add(-1)
	}
	return false
}

// recallInterval is the least time between two recalls.
const recallInterval = time.Millisecond

// recall closes idle pipes, as many as hold the pages, the largest first; of any size unless
// they must be large. It reaches pipes that yieldLarger does not: smaller ones, and those that
// package pool, which knows nothing of the budget, leaves to a processor that works with them.
// It is done once in a while only, because many small pipes go for a large one, to be made
// anew for the next small flow, and because to look for them all stops the pool for some
// microseconds.
func (pl *Pool) recall(pages int64, large bool) bool {
	if pages <= 0 {
		return true // others have given back meanwhile
	}
	now, next := pl.budget.elapsed(), pl.nextRecall.Load()
	if now < next || !pl.nextRecall.CompareAndSwap(next, now+int64(recallInterval)) {
		return false
	}
	left := pages
	for j := len(pl.classes) - 1; j >= 0 && left > 0; j-- {
		c := &pl.classes[j]
		idle := c.idle.Load()
		if idle == nil || large && !c.charge.large {
			continue
		}
		want := (left + c.charge.pages - 1) / c.charge.pages
		n := int64(idle.Trim(int(max(idle.Stats().Idle-want, 0))))
		pl.yield.Add(n)
		left -= n * c.charge.pages
	}
	return left < pages
}

// openOrTrim is open that, when the descriptors run out, closes all idle pipes and
// tries once more.
func (pl *Pool) openOrTrim(k int) (*Pipe, error) {
	p, err := pl.open(k)
	if !outOfDescriptors(err) || pl.Trim() == 0 || !pl.reserve(k) {
		return p, err
	}
	return pl.open(k)
}

// open makes a pipe of class k, the cost of which is reserved; an idle pipe that has turned up
// meanwhile serves as well. Unless the pipe is fresh the reservation is given back.
func (pl *Pool) open(k int) (*Pipe, error) {
	p, err := pl.getOrMake(k)
	fresh := err == nil && p.fresh
	if !fresh {
		pl.budget.give(pl.classes[k].charge)
	}
	switch {
	case fresh:
		pl.budget.allow()
	case errors.Is(err, errRefused):
		// All that is known is that so many were too many: half may not be.
		pl.budget.deny(pl.classes[k].charge.pages / 2)
	case errors.Is(err, errDegraded), pl.budget.hard && errors.Is(err, syscall.ENFILE):
		pl.budget.deny(0)
	}
	if err != nil {
		return nil, err
	}
	p.fresh, p.out = false, true
	p.take()
	return p, nil
}

func (pl *Pool) getOrMake(k int) (*Pipe, error) {
	idle, err := pl.pool(k)
	if err != nil {
		return nil, err
	}
	return idle.Get(context.Background())
}

// pool returns the pool of class k, which its first user makes.
func (pl *Pool) pool(k int) (*pool.Pool[*Pipe], error) {
	c := &pl.classes[k]
	if idle := c.idle.Load(); idle != nil {
		return idle, nil
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.closed.Load() {
		return nil, ErrClosed
	}
	if idle := c.idle.Load(); idle != nil {
		return idle, nil
	}
	idle, err := pl.budget.newClass(k, c, &pl.cfg)
	if err == nil {
		c.idle.Store(idle)
	}
	return idle, err
}

// newClass makes the pool of one class. Its callbacks refer to the budget and not
// to the Pool, so that a Pool that was forgotten becomes garbage.
func (b *budget) newClass(k int, c *class, cfg *Config) (*pool.Pool[*Pipe], error) {
	size, cost := c.size, c.charge
	return pool.New(pool.Config[*Pipe]{
		New: func(context.Context) (*Pipe, error) { return b.open(k, size) },
		Close: func(p *Pipe) {
			p.Close() // may have been closed by its holder
			b.give(cost)
		},
		MaxIdle:  cfg.MaxIdle,
		IdleTime: cfg.IdleTime,
	})
}

// open opens a pipe of class k, the cost of which the caller has reserved. One that comes out
// short is closed and counted.
func (b *budget) open(k, size int) (*Pipe, error) {
	p, err := Open(size)
	switch {
	case err != nil:
		if b.hard && errors.Is(err, syscall.ENFILE) {
			b.refused.Add(1)
		}
		return nil, err
	case p.size >= size:
		p.lease = lease{owner: b, class: k, fresh: true}
		return p, nil
	}
	p.Close()
	if p.size < slots*os.Getpagesize() {
		b.degraded.Add(1)
		return nil, errDegraded
	}
	b.refused.Add(1)
	return nil, errRefused
}
