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

// historyLength is how many generations are remembered by name.
const historyLength = 16

// A Keeper keeps the state that is in force, and the one before it. Changes are made one
// after the other; its methods may be called at any time by any goroutine.
type Keeper[T any] struct {
	cfg      Config[T]
	turn     chan struct{} // has a token in it while a goroutine changes something, which may take its time
	watchers sync.WaitGroup
	ending   context.Context // ends by Close
	end      context.CancelFunc
	closing  sync.Once

	mu       sync.Mutex // guards the next fields, and is not held over a wait. They are written in the turn alone
	current  kept[T]
	since    time.Time // when the current one came into force
	previous *kept[T]  // nil: none
	last     int       // number that was given out
	pending  *pending  // nil: none
	history  []Record  // the newest last
}

// kept is a state with its number.
type kept[T any] struct {
	number int
	state  T
}

// New returns a keeper of a state that is in force already: generation 1.
func New[T any](first T, cfg Config[T]) *Keeper[T] {
	k := &Keeper[T]{cfg: cfg, turn: make(chan struct{}, 1), current: kept[T]{1, first}, last: 1, since: time.Now()}
	k.ending, k.end = context.WithCancel(context.Background())
	k.history = []Record{{Generation: 1, State: Current, At: k.since, By: "start"}}
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
type Installed[T any] struct {
	Generation int      // of the change
	Before     T        // the state that it has replaced
	Pending    *Waiting // nil: it stays
}

// Apply brings a state into force, as soon as others have; ctx bounds that. The error is that
// of Config.Apply, or wraps [ErrPending], [ErrOptions] or [ErrClosed].
func (k *Keeper[T]) Apply(ctx context.Context, next T, o Options) (done Installed[T], err error) {
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
	p.begin(k.cfg.Counter) // before the swap, which may make it rise
	if err := k.cfg.Apply(k.ending, next); err != nil {
		return done, err
	}
	done.Before = k.current.state
	k.install(next, o, p)
	done.Generation = k.current.number
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
		return fmt.Errorf("%w: generation %d, which is rolled back in %v unless it is: confirm it or roll it back first",
			ErrPending, k.current.number, max(time.Until(p.until), 0).Round(time.Second))
	}
	return nil
}

// install makes a state that is in force the current one. The turn is held.
func (k *Keeper[T]) install(next T, o Options, p *pending) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.previous != nil {
		k.mark(k.previous.number, Replaced, "")
	}
	k.mark(k.current.number, Previous, "")
	before := k.current
	k.previous = &before
	k.last++
	k.current, k.pending = kept[T]{k.last, next}, p
	record := Record{Generation: k.last, State: Current, At: time.Now(), By: o.By}
	k.since = record.At
	if p != nil {
		record.State = Pending
		p.until = record.At.Add(p.window)
	}
	k.history = append(k.history, record)
	k.history = slices.Delete(k.history, 0, max(len(k.history)-historyLength, 0))
}

// mark records the state of a generation. The keeper's mu is held.
func (k *Keeper[T]) mark(number int, s State, why string) {
	for i := range k.history {
		if r := &k.history[i]; r.Generation == number {
			r.State, r.Why = s, why
		}
	}
}

// Current returns the state in force, and the number of its generation.
func (k *Keeper[T]) Current() (state T, number int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current.state, k.current.number
}

// Status returns the state of the keeper. It does not wait for changes in progress.
func (k *Keeper[T]) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Status{Current: k.current.number, Since: k.since, History: slices.Clone(k.history)}
	slices.Reverse(s.History)
	if k.previous != nil {
		s.Previous = k.previous.number
	}
	if k.pending != nil {
		s.Pending = k.pending.describe(k.current.number)
	}
	return s
}

// report reports a change. The turn is held.
func (k *Keeper[T]) report(c Change) {
	if k.cfg.Report != nil {
		c.Now = k.current.number
		k.cfg.Report(c)
	}
}
