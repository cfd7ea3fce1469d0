package rollback

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// lookEvery is how often the counter of a bound is looked at, or ten times in the
// time for confirmation if that is more often; tryAgain is how long after a rollback
// that failed the next one is tried.
const (
	lookEvery = 250 * time.Millisecond
	tryAgain  = 5 * time.Second
)

// MinConfirm and MaxConfirm bound the time for which a change may wait to be confirmed: less
// than MinConfirm is too short for any command.
const (
	MinConfirm = time.Second
	MaxConfirm = 24 * time.Hour
)

// CheckConfirm returns an error that wraps [ErrOptions] if no change can wait for so long to be
// confirmed.
func CheckConfirm(d time.Duration) error {
	if d < MinConfirm || d > MaxConfirm {
		return fmt.Errorf("%w: confirm %v: write a time from 1s to 24h, such as 2m", ErrOptions, d)
	}
	return nil
}

// A pending change waits to be confirmed.
type pending struct {
	window time.Duration
	bound  *Bound // nil: none
	over   chan struct{}

	// Written before others know of it.
	until time.Time
	count func() int64 // of the bound's counter
	base  int64        // its value at the change

	failed bool // to be rolled back. Belongs to the holder of the turn
}

// newPending returns nil for options without conditions.
func (k *Keeper[T]) newPending(o Options) (*pending, error) {
	switch {
	case o.Confirm == 0 && o.RollbackIf != "":
		return nil, fmt.Errorf("%w: rollback-if needs confirm, for how long the counter is watched: write for example 2m", ErrOptions)
	case o.Confirm == 0:
		return nil, nil
	}
	if err := CheckConfirm(o.Confirm); err != nil {
		return nil, err
	}
	p := &pending{window: o.Confirm, over: make(chan struct{})}
	if o.RollbackIf == "" {
		return p, nil
	}
	b, err := ParseBound(o.RollbackIf)
	if err != nil {
		return nil, err
	}
	p.bound = &b
	return p, k.knows(b.Counter)
}

// knows returns an error if there is no such counter.
func (k *Keeper[T]) knows(counter string) error {
	if k.cfg.Counter != nil {
		if _, known := k.cfg.Counter(counter); known {
			return nil
		}
	}
	if k.cfg.Counters == nil {
		return fmt.Errorf("%w: rollback-if: there is no counter %q", ErrOptions, counter)
	}
	return fmt.Errorf("%w: rollback-if: there is no counter %q: write one of %s", ErrOptions, counter, strings.Join(k.cfg.Counters(), ", "))
}

// begin notes where the counter begins.
func (p *pending) begin(counter func(string) (int64, bool)) {
	if p == nil || p.bound == nil {
		return
	}
	p.count = func() int64 {
		n, _ := counter(p.bound.Counter)
		return n
	}
	p.base = p.count()
}

// increase returns by how much the counter has risen.
func (p *pending) increase() int64 {
	if p.count == nil {
		return 0
	}
	return p.count() - p.base
}

// verdict says why the change is to be taken back; "" if it is not.
func (p *pending) verdict() string {
	if n := p.increase(); p.bound != nil && n > p.bound.Most {
		return fmt.Sprintf("%s rose by %d, the bound is %s", p.bound.Counter, n, p.bound)
	}
	if !time.Now().Before(p.until) {
		return fmt.Sprintf("it was not confirmed within %v", p.window)
	}
	return ""
}

func (p *pending) describe(number int) *Waiting {
	w := &Waiting{Generation: number, Until: p.until, Increase: p.increase()}
	if p.bound != nil {
		w.RollbackIf = p.bound.String()
	}
	return w
}

// watch takes a change back if it must be.
func (k *Keeper[T]) watch(p *pending) {
	end := time.NewTimer(time.Until(p.until))
	defer end.Stop()
	look := time.NewTicker(min(lookEvery, max(p.window/10, time.Millisecond)))
	defer look.Stop()
	for {
		select {
		case <-p.over:
			return
		case <-k.ending.Done():
			return
		case <-end.C:
		case <-look.C:
		}
		if why := p.verdict(); why != "" {
			if !k.takeBack(p, why) {
				return
			}
			end.Stop() // it may have come together with a look
			look.Reset(tryAgain)
		}
	}
}

// takeBack rolls a change back, unless that was decided meanwhile. It reports whether it
// failed and is to be tried again.
func (k *Keeper[T]) takeBack(p *pending, why string) (again bool) {
	if k.take(k.ending) != nil {
		return false
	}
	defer k.give()
	if k.pending != p {
		return false
	}
	return k.revert(k.find(k.current.before), Itself, why) != nil
}

// Confirm confirms the pending change. Number is that of its generation, so that a late
// confirmation is not applied to another change; 0 is any. A change that must not stay,
// because the bound is passed or its time is over, is rolled back instead, which is an error;
// one whose rollback has failed may be confirmed. The error may wrap [ErrNothing], [ErrLate]
// or [ErrClosed].
func (k *Keeper[T]) Confirm(ctx context.Context, number int, actor string) (int, error) {
	if err := k.take(ctx); err != nil {
		return k.Status().Current, err
	}
	defer k.give()
	p := k.pending
	if p == nil {
		return k.current.Generation, fmt.Errorf("%w waits to be confirmed: generation %d is in force%s", ErrNothing, k.current.Generation, k.finalStatus())
	}
	if number > k.last {
		return k.current.Generation, fmt.Errorf("%w to confirm as generation %d: the last one is %d, which waits to be confirmed", ErrNothing, number, k.current.Generation)
	}
	if number != 0 && number != k.current.Generation {
		return k.current.Generation, fmt.Errorf("%w to confirm generation %d: it is generation %d that waits to be confirmed", ErrLate, number, k.current.Generation)
	}
	if why := p.verdict(); why != "" && !p.failed {
		if err := k.revert(k.find(k.current.before), Itself, why); err != nil {
			return k.current.Generation, err
		}
		return k.current.Generation, fmt.Errorf("%w, it was rolled back: %s", ErrLate, why)
	}
	k.mu.Lock()
	k.pending = nil
	k.name()
	k.mu.Unlock()
	close(p.over)
	k.report(Change{Event: Confirmed, Generation: k.current.Generation, By: actor})
	return k.current.Generation, nil
}

// finalStatus describes the state of the last generation if it is not in force.
func (k *Keeper[T]) finalStatus() string {
	if r := k.kept[len(k.kept)-1]; r.State == RolledBack {
		return fmt.Sprintf(", and generation %d was rolled back: %s", r.Generation, r.Why)
	}
	return ""
}

// A Returned is the result of a rollback.
type Returned struct {
	Generation int      // in force now
	Changes    []string // the lines of Config.Changes; empty: both generations have equal states
}

// Rollback returns to the generation of a number, or to the one before the current one for 0, whether or not the
// current one waits to be confirmed. The error is that of Config.Apply, or wraps [ErrNothing] or [ErrClosed].
func (k *Keeper[T]) Rollback(ctx context.Context, number int, actor string) (done Returned, err error) {
	done.Generation = k.Status().Current
	if err := k.take(ctx); err != nil {
		return done, err
	}
	defer k.give()
	done.Generation = k.current.Generation
	if number == 0 {
		number = k.current.before
	}
	to := k.find(number)
	switch {
	case to == k.current:
		return done, fmt.Errorf("%w to return to: generation %d is in force", ErrNothing, number)
	case to == nil && number == 0:
		return done, fmt.Errorf("%w to return to: generation %d is in force, and it was the first", ErrNothing, done.Generation)
	case to == nil:
		return done, fmt.Errorf("%w to return to: generation %d is not kept: there are %s", ErrNothing, number, k.numbers())
	}
	next, err := to.unpack()
	if err != nil {
		return done, fmt.Errorf("rollback to generation %d: %w", to.Generation, err)
	}
	done.Changes = k.cfg.Changes(k.state, next)
	if err = k.revert(to, actor, "asked for by "+actor); err == nil {
		done.Generation = to.Generation
	}
	return done, err
}

// numbers lists the generations that are kept. The turn is held.
func (k *Keeper[T]) numbers() string {
	list := make([]string, len(k.kept))
	for i, g := range k.kept {
		list[i] = strconv.Itoa(g.Generation)
	}
	return strings.Join(list, ", ")
}

// revert returns to a generation, and takes back those since. One that waits goes on waiting if that fails,
// so that it is tried again. The turn is held.
func (k *Keeper[T]) revert(to *kept[T], by, why string) error {
	from := k.current
	next, err := to.unpack()
	if err == nil {
		err = k.cfg.Apply(k.ending, next)
	}
	if err != nil {
		err = fmt.Errorf("rollback to generation %d: %w", to.Generation, err)
		k.mu.Lock()
		if k.pending != nil {
			k.pending.failed = true
			from.Why = fmt.Sprintf("%s; %v", why, err)
		}
		k.mu.Unlock()
		k.report(Change{Event: RollbackFailed, Generation: from.Generation, By: by, Why: why, Err: err})
		return err
	}
	unpack := k.cfg.Pack(k.state)
	k.mu.Lock()
	p := k.pending
	from.unpack, to.unpack = unpack, nil
	k.current, k.state, k.pending, k.since = to, next, nil, time.Now()
	for _, g := range k.kept {
		if g == from || g.Generation > to.Generation && g.State != RolledBack {
			g.State, g.Why = RolledBack, why
		}
	}
	k.name()
	k.mu.Unlock()
	if p != nil {
		close(p.over)
	}
	k.report(Change{Event: TakenBack, Generation: from.Generation, By: by, Why: why})
	return nil
}
