package loop

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// A Group is several loops that run side by side, as a rule one for each CPU, each
// on a goroutine of its own.
type Group struct {
	loops []*Loop // owned
}

// NewGroup makes n loops, for n = 0 GOMAXPROCS of them, each with the
// configuration. The error is that of [New].
func NewGroup(n int, cfg *Config) (*Group, error) {
	if n < 0 {
		return nil, fmt.Errorf("penstock: loop: %w: %d loops; write 0 for one per CPU, or more", ErrConfig, n)
	}
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	g := &Group{loops: make([]*Loop, 0, n)}
	for range n {
		l, err := New(cfg)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.loops = append(g.loops, l)
	}
	return g, nil
}

var errLoopGoexit = errors.New("penstock: loop: a handler has called runtime.Goexit, which ended the loop")

// Loops returns the loops, which are not to be run or closed one by one. The slice
// is the group's.
func (g *Group) Loops() []*Loop { return g.loops }

// Run runs the loops until [Group.Stop], or until one of them fails, which stops
// the others. All of them have ended when it returns. runtime.Goexit in a handler ends its
// loop, which is a failure.
func (g *Group) Run() error {
	errs := make([]error, len(g.loops))
	var running sync.WaitGroup
	for i, l := range g.loops {
		running.Go(func() {
			errs[i] = errLoopGoexit
			defer func() {
				if errs[i] == errLoopGoexit {
					g.Stop()
				}
			}()
			if errs[i] = l.Run(); errs[i] != nil {
				g.Stop()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// Stop makes Run return, also one that is called later. It may be called by any
// goroutine at any time.
func (g *Group) Stop() {
	for _, l := range g.loops {
		l.Stop()
	}
}

// Close closes the loops. Run must not be running.
func (g *Group) Close() error {
	errs := make([]error, len(g.loops))
	for i, l := range g.loops {
		errs[i] = l.Close()
	}
	return errors.Join(errs...)
}
