package rollback

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Config sets up a [Keeper].
type Config[T any] struct {
	// Apply brings a state into force: all of it, or nothing and an error. It is called by one
	// goroutine at a time, and not for the first state. A change that has begun does not end
	// with its caller's context: ctx ends by [Keeper.Close].
	Apply func(ctx context.Context, next T) error
	// Changes returns a readable line for each difference between two states; none: they are equal, and a
	// change from one to the other is no new generation. It is called in the turn of Apply.
	Changes func(from, to T) []string
	// Pack returns how a state that was replaced comes back, for as long as a rollback may return to it; nil: states are kept as they are.
	Pack func(T) (unpack func() (T, error))
	// Counter returns the value of a counter that never falls, and whether there is one
	// of that name. Nil means that there are none.
	Counter func(name string) (value int64, known bool)
	// Counters returns the names that Counter knows, for errors about an unknown one; it may
	// be nil.
	Counters func() []string
	// Report is called for each change, by one goroutine at a time; it may be nil. It must not
	// call the keeper.
	Report func(Change)
}

// Kept is how many generations are kept, with the one in force: a rollback may return to each of them.
const Kept = 10

// maxLines is how many changes of a generation are kept as lines; more are only counted.
const maxLines = 40

// A Keeper keeps the state that is in force, and those before it. Changes are made one
// after the other; its methods may be called at any time by any goroutine.
type Keeper[T any] struct {
	cfg      Config[T]
	turn     chan struct{} // has a token in it while a goroutine changes something, which may take its time
	watchers sync.WaitGroup
	ending   context.Context // ends by Close
	end      context.CancelFunc
	closing  sync.Once

	mu      sync.Mutex // guards the next fields, and is not held over a wait. They are written in the turn alone
	kept    []*kept[T] // the newest last
	current *kept[T]   // in force, and in kept
	state   T          // of current
	since   time.Time  // when it came into force
	last    int        // number that was given out
	pending *pending   // nil: none
}

// kept is a generation that a rollback may return to.
type kept[T any] struct {
	Record
	unpack func() (T, error) // of a generation that is not current
	before int               // the number of the generation that it replaced; 0: none
}

// New returns a keeper of a state that is in force already: generation 1.
func New[T any](first T, cfg Config[T]) *Keeper[T] {
	if cfg.Pack == nil {
		cfg.Pack = func(state T) func() (T, error) { return func() (T, error) { return state, nil } }
	}
	k := &Keeper[T]{cfg: cfg, turn: make(chan struct{}, 1), state: first, last: 1, since: time.Now()}
	k.ending, k.end = context.WithCancel(context.Background())
	k.current = &kept[T]{Record: Record{Generation: 1, At: k.since, By: "start", Changes: []string{}}}
	k.kept = []*kept[T]{k.current}
	k.name()
	return k
}

// Close ends automatic rollbacks: a change that waits to be confirmed stays as it is. It waits
// for changes in progress.
func (k *Keeper[T]) Close() {
	k.closing.Do(func() {
		k.end()
		k.turn <- struct{}{} // for good
		k.watchers.Wait()
	})
}

// take waits for the turn; the caller gives it back.
func (k *Keeper[T]) take(ctx context.Context) error {
	switch {
	case k.ending.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another reload is under way: %w", context.Cause(ctx))
	case <-k.ending.Done():
		return ErrClosed
	}
}

func (k *Keeper[T]) give() { <-k.turn }

// An Installed is the result of a change, as it was at that time: concurrent changes are not
// in it.
type Installed struct {
	Generation int      // in force now
	Changes    []string // the lines of Config.Changes; empty: it was in force already, and is no new generation
	Pending    *Waiting // nil: it stays
}

// Apply brings a state into force, as soon as others have; ctx bounds that. A state that equals the one in force
// is applied, takes its place in the present generation, and needs no confirmation. The error is that
// of Config.Apply, or wraps [ErrPending], [ErrOptions] or [ErrClosed].
func (k *Keeper[T]) Apply(ctx context.Context, next T, o Options) (done Installed, err error) {
	p, err := k.newPending(o)
	if err != nil {
		return done, err
	}
	if err := k.take(ctx); err != nil {
		return done, err
	}
	defer k.give()
	if err := k.idle(); err != nil {
		return done, err
	}
	done.Changes = k.cfg.Changes(k.state, next)
	p.begin(k.cfg.Counter) // before the swap, which may make it rise
	if err := k.cfg.Apply(k.ending, next); err != nil {
		return done, err
	}
	if len(done.Changes) == 0 {
		k.mu.Lock()
		k.state = next
		k.mu.Unlock()
		done.Generation = k.current.Generation
		k.report(Change{Event: Unchanged, Generation: done.Generation, By: o.By})
		return done, nil
	}
	k.install(next, done.Changes, o, p)
	done.Generation = k.current.Generation
	if p != nil {
		done.Pending = p.describe(done.Generation)
		k.watchers.Go(func() { k.watch(p) })
	}
	k.report(Change{Event: Applied, Generation: done.Generation, By: o.By, Pending: done.Pending})
	return done, nil
}

// idle returns an error if a change waits to be confirmed. The turn is held.
func (k *Keeper[T]) idle() error {
	if p := k.pending; p != nil {
		return fmt.Errorf("generation %d %w, and is rolled back in %v otherwise: run penstock confirm or penstock rollback first",
			k.current.Generation, ErrPending, max(time.Until(p.until), 0).Round(time.Second))
	}
	return nil
}

// install makes a state that is in force the current one. The turn is held.
func (k *Keeper[T]) install(next T, changes []string, o Options, p *pending) {
	unpack := k.cfg.Pack(k.state)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	k.since = time.Now()
	k.current.unpack, k.state = unpack, next
	k.current, k.pending = &kept[T]{Record: Record{Generation: k.last, At: k.since, By: o.By, Changes: few(changes)}, before: k.current.Generation}, p
	if p != nil {
		p.until = k.since.Add(p.window)
	}
	k.kept = append(k.kept, k.current)
	if len(k.kept) > Kept {
		oldest := slices.IndexFunc(k.kept, func(g *kept[T]) bool { return g.State == RolledBack })
		k.kept = slices.Delete(k.kept, max(oldest, 0), max(oldest, 0)+1)
	}
	k.name()
}

// few returns the first ones of many lines, and how many more there are.
func few(lines []string) []string {
	if more := len(lines) - maxLines; more > 0 {
		return append(slices.Clone(lines[:maxLines]), fmt.Sprintf("... and %d more", more))
	}
	return lines
}

// name gives the generations their states, but for those that were rolled back. The keeper's mu is held.
func (k *Keeper[T]) name() {
	for _, g := range k.kept {
		switch {
		case g == k.current && k.pending != nil:
			g.State = Pending
		case g == k.current:
			g.State, g.Why = Current, ""
		case g.Generation == k.current.before:
			g.State, g.Why = Previous, ""
		case g.State != RolledBack:
			g.State = Replaced
		}
	}
}

// find returns the generation of a number; nil: it is not kept. The turn or mu is held.
func (k *Keeper[T]) find(number int) *kept[T] {
	if i := slices.IndexFunc(k.kept, func(g *kept[T]) bool { return g.Generation == number }); i >= 0 {
		return k.kept[i]
	}
	return nil
}

// Current returns the state in force, and the number of its generation.
func (k *Keeper[T]) Current() (state T, number int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.current.Generation
}

// Status returns the state of the keeper. It does not wait for changes in progress.
func (k *Keeper[T]) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Status{Current: k.current.Generation, Since: k.since}
	for _, g := range slices.Backward(k.kept) {
		s.History = append(s.History, g.Record)
	}
	if before := k.find(k.current.before); before != nil {
		s.Previous = before.Generation
	}
	if k.pending != nil {
		s.Pending = k.pending.describe(k.current.Generation)
	}
	return s
}

// report reports a change. The turn is held.
func (k *Keeper[T]) report(c Change) {
	if k.cfg.Report != nil {
		c.Now = k.current.Generation
		k.cfg.Report(c)
	}
}
