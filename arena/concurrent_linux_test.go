package arena_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/penstock/penstock/arena"
)

// A player leases and puts slots of one Local at random. It marks them with its number,
// and checks that no other player has written to them.
type player struct {
	local *arena.Local
	mark  byte
	r     *rand.Rand
	out   []arena.Handle
}

func (p *player) step(t *testing.T) {
	if len(p.out) > 0 && p.r.IntN(5) < 2 {
		p.put(t, p.r.IntN(len(p.out)))
		return
	}
	h, err := p.local.Get(1+p.r.IntN(arena.MaxSlot>>p.r.IntN(9)), arena.Purpose(p.r.IntN(arena.Purposes)))
	if err == arena.ErrBudget {
		for len(p.out) > 3 {
			p.put(t, len(p.out)-1)
		}
		p.local.Trim()
		runtime.Gosched()
		return
	}
	b, err := p.local.Bytes(h)
	if err != nil {
		t.Error(err)
		return
	}
	b[0], b[len(b)-1] = p.mark, p.mark
	p.out = append(p.out, h)
}

func (p *player) put(t *testing.T, i int) {
	h := p.out[i]
	p.out[i] = p.out[len(p.out)-1]
	p.out = p.out[:len(p.out)-1]
	b, err := p.local.Bytes(h)
	if err != nil || b[0] != p.mark || b[len(b)-1] != p.mark {
		t.Errorf("the slot at %d is not as it was left: %v", h.Offset(), err)
	}
	if err := p.local.Put(h); err != nil {
		t.Error(err)
	}
}

// TestLocalsTogether: Locals that compete for the chunks never have one slot twice, nor
// more than the budget together. The statistics may be read meanwhile. In the end
// nothing is missing.
func TestLocalsTogether(t *testing.T) {
	const chunks, locals = 40, 4
	steps := 20_000
	if arena.Invariants {
		steps /= 10 // of which each fills a slot
	}
	a := plain(t, chunks, locals)
	var wg sync.WaitGroup
	for i := range locals {
		wg.Go(func() {
			p := &player{local: a.Local(i), mark: byte(i + 1), r: rand.New(rand.NewPCG(uint64(i), 4))}
			for range steps {
				p.step(t)
			}
			for len(p.out) > 0 {
				p.put(t, 0)
			}
			p.local.Trim()
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			runtime.Gosched()
		}
		s := a.Stats()
		if s.Used < 0 || s.Used > s.Budget || s.Peak > s.Budget {
			t.Errorf("%d bytes in use, at most %d, of %d", s.Used, s.Peak, s.Budget)
		}
	}
	s := a.Stats()
	t.Logf("%+v", s)
	if s.Used != 0 || s.Stale != 0 {
		t.Errorf("%d bytes in use at the end, %d handles refused", s.Used, s.Stale)
	}
	for p, u := range s.ByPurpose {
		if u.Out != 0 || u.Bytes != 0 || u.Gets == 0 {
			t.Errorf("%v: %+v", arena.Purpose(p), u)
		}
	}
}
