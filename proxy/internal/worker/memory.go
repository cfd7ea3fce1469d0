package worker

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/arena"
)

// MemoryConfig says which memory loops keep bytes in that slow destinations have not taken. The
// zero value takes the best that there is.
type MemoryConfig struct {
	// Pages is the kind of pages, as in [arena.Config]. RequireHuge has New fail unless all of
	// the memory is made of huge pages; Pages is PagesAuto then.
	Pages       arena.Pages
	RequireHuge bool
	// Mlock keeps it from being swapped out, as in [arena.Config].
	Mlock bool
	// Bound has all of it be on Node; Unbound has none of it bound. With neither loops take
	// turns at the nodes of the machine. There is no node below 0.
	Bound, Unbound bool
	Node           int
}

// ErrHugePages is wrapped by the error of New if MemoryConfig.RequireHuge cannot be had.
var ErrHugePages = errors.New("no huge pages for all of it")

// Memory is the memory that a group has.
type Memory struct {
	Pages  arena.Pages // PagesReserved, PagesTransparent or PagesPlain
	Locked bool
	Nodes  []int // those to which it is bound, by loop; nil: it is bound to none
	// Fallback is why the pages are no better, and Unbound why a machine's several nodes are not
	// used; nil: they are as they should be.
	Fallback, Unbound error
}

// Memory returns the memory that the group has. It does not change.
func (g *Group) Memory() Memory {
	m := Memory{Pages: g.mem.Pages(), Locked: g.cfg.Memory.Mlock, Fallback: g.mem.Fallback(), Unbound: g.mem.Unbound()}
	for i := range g.mem.Locals() {
		if n := g.mem.Local(i).Node(); n >= 0 {
			m.Nodes = append(m.Nodes, n)
		}
	}
	return m
}

// open makes the memory of so many loops. The caller owns it.
func (c *MemoryConfig) open(loops int) (*arena.Arena, error) {
	cfg := arena.Config{Locals: loops, Pages: c.Pages, Mlock: c.Mlock}
	if c.Bound || c.Unbound {
		node := -1
		if c.Bound {
			node = c.Node
		}
		for range loops {
			cfg.Nodes = append(cfg.Nodes, node)
		}
	}
	if !c.RequireHuge {
		return arena.New(&cfg)
	}
	var missed []error
	for _, pages := range [...]arena.Pages{arena.PagesReserved, arena.PagesTransparent} {
		cfg.Pages = pages
		mem, err := arena.New(&cfg)
		if err == nil {
			if err = whole(mem); err == nil {
				return mem, nil
			}
			err = errors.Join(err, mem.Close())
		}
		if errors.Is(err, arena.ErrLock) || errors.Is(err, arena.ErrBind) {
			return nil, err
		}
		missed = append(missed, fmt.Errorf("%v: %w", pages, err))
	}
	return nil, fmt.Errorf("%w: %w", ErrHugePages, errors.Join(missed...))
}

// whole returns an error unless all of an arena is made of huge pages.
func whole(mem *arena.Arena) error {
	if s := mem.Stats(); s.Huge < s.Mapped {
		return fmt.Errorf("%d of %d bytes", s.Huge, s.Mapped)
	}
	return nil
}
