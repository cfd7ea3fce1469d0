// Package rollback keeps the configuration of a process and earlier ones, so that a remote change can be rolled back:
// by a command, or automatically if it is not confirmed or a counter rises too far.
package rollback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config sets up a [Keeper].
type Config[T any] struct {
	// Apply puts a state into force: all of it, or nothing and an error. It is called by one goroutine at a time, and
	// not for the first state. ctx ends by [Keeper.Close], but not with the caller's context: a change that has begun
	// goes on.
	Apply func(ctx context.Context, next T) error
	// Changes returns a line in words for each difference between two states. Without a line the states are equal, and
	// a change from one to the other is no new generation. It is called in the turn of Apply.
	Changes func(from, to T) []string
	// Pack packs a replaced state, as long as a rollback may return to it, and returns the function that unpacks it. If
	// Pack is nil, states are kept as they are.
	Pack func(T) (unpack func() (T, error))
	// Counter returns the value of a counter that never decreases, and whether there is a counter with this name. It
	// may wait, and may be nil.
	Counter func(name string) (value int64, known bool)
	// Counters returns the names that Counter knows, for errors about an unknown name. It may be nil.
	Counters func() []string
	// Report is called for each change, by one goroutine at a time. It must not call the keeper. It may be nil.
	Report func(Change)
}

// Kept is how many generations are kept, including the one in force. A rollback may return to each of them.
const Kept = 10

// maxLines is how many changes of a generation are kept as lines; more are only counted.
const maxLines = 40

// A Keeper keeps the state in force and the states before it. It makes one change after the other. Any goroutine may
// call its methods at any time.
type Keeper[T any] struct {
	cfg      Config[T]
	turn     chan struct{} // holds a token while a goroutine changes something, which may take long
	watchers sync.WaitGroup
	ending   context.Context // ends by Close
	end      context.CancelFunc
	closing  sync.Once

	mu      sync.Mutex // guards the next fields; never held during a wait. They are written only in the turn
	kept    []*kept[T] // the newest last
	current *kept[T]   // in force, and in kept
	state   T          // state of current
	since   time.Time  // when it came into force
	last    int        // last number that was given out
	pending *pending   // nil without one
}

// kept is a generation that a rollback may return to.
type kept[T any] struct {
	Record
	unpack func() (T, error) // for a generation that is not current
	before int               // number of the generation that it replaced, or 0
	ended  time.Time         // when it was last rolled back
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

// Close ends automatic rollbacks: a change that waits to be confirmed stays unconfirmed. Close waits for changes in
// progress.
func (k *Keeper[T]) Close() {
	k.closing.Do(func() {
		k.end()
		k.turn <- struct{}{} // for good
		k.stay()
		k.watchers.Wait()
	})
}

// stay ends the wait of a pending change: from now on nothing rolls it back. The caller holds the turn.
func (k *Keeper[T]) stay() {
	k.mu.Lock()
	was := k.pending
	if k.pending = nil; was != nil {
		k.name()
		k.current.Why = "it was not confirmed before the process began to end, and stays in force"
	}
	k.mu.Unlock()
	if was != nil {
		k.report(Change{Event: Unconfirmed, Generation: k.current.Generation, Why: k.current.Why})
	}
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

// An Installed is the result of a change at the time of the change. It does not show concurrent changes.
type Installed struct {
	Generation int      // generation in force now
	Changes    []string // the lines of Config.Changes; empty if the state was already in force, and is no new generation
	Pending    *Waiting // nil if the change needs no confirmation
}

// Apply puts a state into force after the changes in progress; ctx limits this wait. A state that equals the state in
// force is applied too. It replaces that state in the present generation, and needs no confirmation. The error is
// Config.Apply's, or wraps [ErrPending], [ErrOptions] or [ErrClosed].
func (k *Keeper[T]) Apply(ctx context.Context, next T, o Options) (done Installed, err error) {
	p, err := k.newPending(o)
	if err != nil {
		return done, err
	}
	if err := k.take(ctx); err != nil {
		return done, err
	}
	defer k.give()
	if p := k.pending; p != nil {
		return done, fmt.Errorf("generation %d %w, or will be rolled back at %s: run penstock confirm or penstock rollback first",
			k.current.Generation, ErrPending, p.until.Format(time.TimeOnly))
	}
	done.Changes = k.cfg.Changes(k.state, next)
	p.begin(k.cfg.Counter) // before the swap, which may make the counter rise
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
		done.Pending.Increase = p.increase()
		k.watchers.Go(func() { k.watch(p) })
	}
	k.report(Change{Event: Applied, Generation: done.Generation, By: o.By, Pending: done.Pending})
	return done, nil
}

// install makes a state that is in force the current one. The caller holds the turn.
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

func few(lines []string) []string {
	if more := len(lines) - maxLines; more > 0 {
		return append(slices.Clone(lines[:maxLines]), fmt.Sprintf("... and %d more", more))
	}
	return lines
}

// name sets the states of all generations that were not rolled back. The caller holds mu.
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

// find returns the generation with a number, or nil if it is not kept. The caller holds the turn or mu.
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
	s, p := k.status(), k.pending
	k.mu.Unlock()
	if p != nil {
		s.Pending.Increase = p.increase()
	}
	return s
}

// status is Status without the increase of a counter. The caller holds mu.
func (k *Keeper[T]) status() Status {
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

func (k *Keeper[T]) report(c Change) {
	if k.cfg.Report != nil {
		c.Now = k.current.Generation
		k.cfg.Report(c)
	}
}

var (
	// ErrPending is wrapped by the error of a change that is refused because the previous one waits to be confirmed.
	// Otherwise a confirmation of the previous change could confirm the new one.
	ErrPending = errors.New("waits to be confirmed")
	// ErrNothing is wrapped by the errors of [Keeper.Confirm] and [Keeper.Rollback] if there is nothing to confirm, or
	// nothing to return to.
	ErrNothing = errors.New("nothing")
	// ErrLate is wrapped by the error of [Keeper.Confirm] if the change may no longer stay and was rolled back, or is
	// not in force.
	ErrLate = errors.New("too late")
	// ErrOptions is wrapped by the error of [Keeper.Apply] for invalid options. This error is one line with a
	// correction.
	ErrOptions = errors.New("invalid option")
	// ErrClosed is the error of a [Keeper] that was closed.
	ErrClosed = errors.New("the process is ending")
)

// Options say under which conditions a change stays.
type Options struct {
	// Confirm is how long a change waits to be confirmed. Without a confirmation it is then rolled back. 0 means that
	// the change needs no confirmation.
	Confirm time.Duration
	// RollbackIf rolls the change back as soon as it holds while the change waits to be confirmed, see [ParseBound]. It
	// needs Confirm. "" means never.
	RollbackIf string
	// By is who makes the change: "SIGHUP", "watch", ... It is only reported.
	By string
}

// State is the state of a generation.
type State string

// The states of generations.
const (
	Current    State = "current"     // in force
	Pending    State = "pending"     // in force, and waits to be confirmed
	Previous   State = "previous"    // a rollback returns to it
	Replaced   State = "replaced"    // was in force before; a rollback to its number returns to it
	RolledBack State = "rolled back" // was rolled back; a rollback to its number brings it back
)

// Itself is the author of automatic rollbacks, in [Change] and in logs.
const Itself = "penstock"

// A Record describes a generation.
type Record struct {
	Generation int       `json:"generation"`    // number of the generation, from 1
	State      State     `json:"state"`         // state of the generation
	At         time.Time `json:"at"`            // when it first came into force
	By         string    `json:"by,omitempty"`  // who made the change
	Why        string    `json:"why,omitempty"` // why it was rolled back, could not be, or stays unconfirmed
	// Changes has a line for each change from the previous generation, for at most 40 changes.
	Changes []string `json:"changes"`
}

// Waiting describes a change that waits to be confirmed.
type Waiting struct {
	Generation int       `json:"generation"`            // generation that waits to be confirmed
	Until      time.Time `json:"until"`                 // when it is rolled back
	RollbackIf string    `json:"rollback_if,omitempty"` // bound that rolls it back earlier
	Increase   int64     `json:"increase"`              // how far the counter of RollbackIf has risen until now
	// Failed is why the last attempt to roll it back failed, or "". The rollback is tried again every few seconds.
	Failed string `json:"failed,omitempty"`
}

// Status is the state of a [Keeper]. Its JSON form is part of the interface of the program.
type Status struct {
	Current  int       `json:"current"`           // number of the generation in force, from 1
	Since    time.Time `json:"since"`             // when the last reload or rollback put the current generation into force
	Previous int       `json:"previous"`          // generation to which a rollback returns, or 0
	Pending  *Waiting  `json:"pending,omitempty"` // left out if no change waits to be confirmed
	History  []Record  `json:"history"`           // kept generations, the newest first
}

// An Event is a change of a generation's state.
type Event string

// The events.
const (
	Applied        Event = "applied"
	Unchanged      Event = "unchanged" // the applied state equals the one in force
	Confirmed      Event = "confirmed"
	Unconfirmed    Event = "unconfirmed" // the change stays, because the keeper was closed
	TakenBack      Event = "rolled back"
	RollbackFailed Event = "rollback failed"
)

// A Change is a report of a [Keeper].
type Change struct {
	Event      Event
	Generation int    // generation of the event
	Now        int    // generation in force after the event
	By, Why    string // who made the change, and the reason of a rollback, or ""
	Err        error  // for RollbackFailed
	Pending    *Waiting
}

// lookEvery is how often the counter of a bound is read; it is read at least ten times in the time for confirmation.
// tryAgain is how long after a failed rollback the next one is tried. counterTime is how long a counter may take.
const (
	lookEvery   = 250 * time.Millisecond
	tryAgain    = 5 * time.Second
	counterTime = time.Second
)

// MinConfirm and MaxConfirm limit how long a change may wait to be confirmed. Less than MinConfirm is too short for any
// command.
const (
	MinConfirm = time.Second
	MaxConfirm = 24 * time.Hour
)

// CheckConfirm returns an error that wraps [ErrOptions] if a time is too short or too long to wait for a confirmation.
func CheckConfirm(d time.Duration) error {
	if d < MinConfirm || d > MaxConfirm {
		return fmt.Errorf("%w: confirm %v: write a time from 1s to 24h, such as 2m", ErrOptions, d)
	}
	return nil
}

// A pending change waits to be confirmed.
type pending struct {
	window time.Duration
	bound  *Bound // nil without one
	over   chan struct{}

	// Set before other goroutines know of the change.
	until time.Time
	count func() int64 // reads the bound's counter
	base  int64        // value of the counter at the change

	risen atomic.Int64 // the last increase of the counter
	late  atomic.Int64 // readings of the counter that take too long

	failure string // why the last automatic rollback failed, or "". The keeper's mu guards it; it is written only in the turn
}

// newPending returns nil for options without conditions.
func (k *Keeper[T]) newPending(o Options) (*pending, error) {
	switch {
	case o.Confirm == 0 && o.RollbackIf != "":
		return nil, fmt.Errorf("%w: rollback-if needs confirm, which says how long the counter is watched: write for example 2m", ErrOptions)
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

// begin notes the value at which the counter begins.
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

// increase returns how much the counter has risen. If the counter does not answer, because the change has stopped what it counts,
// it returns the last increase: a rollback must not wait for the counter.
func (p *pending) increase() int64 {
	if p.count == nil || p.late.Load() > 0 {
		return p.risen.Load()
	}
	read, over := make(chan int64, 1), time.NewTimer(counterTime)
	defer over.Stop()
	go func() { read <- p.count() - p.base }()
	select {
	case n := <-read:
		p.risen.Store(n)
	case <-over.C:
		p.late.Add(1)
		go func() {
			p.risen.Store(<-read)
			p.late.Add(-1)
		}()
	}
	return p.risen.Load()
}

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
	w := &Waiting{Generation: number, Until: p.until, Failed: p.failure}
	if p.bound != nil {
		w.RollbackIf = p.bound.String()
	}
	return w
}

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
			end.Stop() // it may have fired together with a look
			look.Reset(tryAgain)
		}
	}
}

// takeBack rolls a change back, unless its fate was decided meanwhile. It reports whether this failed and must be tried
// again.
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

// Confirm confirms the pending change. number is its generation, so that a late confirmation does not confirm another
// change; 0 is any. A change that may not stay, because its bound is passed or its time is over, is rolled back
// instead, which is an error. If this rollback has failed, the change may be confirmed. The error may wrap
// [ErrNothing], [ErrLate] or [ErrClosed].
func (k *Keeper[T]) Confirm(ctx context.Context, number int, actor string) (int, error) {
	if err := k.take(ctx); err != nil {
		_, now := k.Current()
		return now, err
	}
	defer k.give()
	p := k.pending
	if p == nil {
		last := ""
		if r := k.kept[len(k.kept)-1]; r.State == RolledBack {
			last = fmt.Sprintf(", and generation %d was rolled back: %s", r.Generation, r.Why)
		}
		return k.current.Generation, fmt.Errorf("%w waits to be confirmed: generation %d is in force%s", ErrNothing, k.current.Generation, last)
	}
	if number > k.last {
		return k.current.Generation, fmt.Errorf("%w to confirm as generation %d: the last generation is %d, which waits to be confirmed", ErrNothing, number, k.current.Generation)
	}
	if number != 0 && number != k.current.Generation {
		return k.current.Generation, fmt.Errorf("%w to confirm generation %d: generation %d waits to be confirmed", ErrLate, number, k.current.Generation)
	}
	if why := p.verdict(); why != "" && p.failure == "" {
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

// A Returned is the result of a rollback.
type Returned struct {
	Generation int      // generation in force now
	Changes    []string // the lines of Config.Changes; empty if both generations have equal states
}

// Rollback returns to the generation with a number, or with 0 to the generation before the current one, whether or not
// the current one waits to be confirmed. If the last generation was already rolled back, 0 is refused: its caller may
// not know yet, and would go one generation too far. The error is Config.Apply's, or wraps [ErrNothing] or [ErrClosed].
func (k *Keeper[T]) Rollback(ctx context.Context, number int, actor string) (done Returned, err error) {
	_, done.Generation = k.Current()
	if err := k.take(ctx); err != nil {
		return done, err
	}
	defer k.give()
	done.Generation = k.current.Generation
	if number == 0 {
		if err := k.alreadyBack(); err != nil {
			return done, err
		}
		number = k.current.before
	}
	to := k.find(number)
	switch {
	case to == k.current:
		return done, fmt.Errorf("%w to return to: generation %d is in force", ErrNothing, number)
	case to == nil && number == 0:
		return done, fmt.Errorf("%w older to return to: generation %d is the first", ErrNothing, done.Generation)
	case to == nil:
		return done, fmt.Errorf("%w to return to: generation %d is not kept: the kept generations are %s", ErrNothing, number, k.numbers())
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

// alreadyBack returns an error if the last generation was rolled back. The caller holds the turn.
func (k *Keeper[T]) alreadyBack() error {
	last := k.kept[len(k.kept)-1]
	if last.State != RolledBack {
		return nil
	}
	further := ""
	if k.current.before != 0 {
		further = fmt.Sprintf(": to go further back, run penstock rollback --to %d", k.current.before)
	}
	return fmt.Errorf("%w to return to: generation %d was already rolled back at %s (%s), and generation %d is in force%s",
		ErrNothing, last.Generation, last.ended.Format(time.DateTime), last.Why, k.current.Generation, further)
}

func (k *Keeper[T]) numbers() string {
	list := make([]string, len(k.kept))
	for i, g := range k.kept {
		list[i] = strconv.Itoa(g.Generation)
	}
	return strings.Join(list, ", ")
}

// revert returns to a generation, and rolls back later ones. If this fails, a generation that waits to be confirmed
// continues to wait, so that the rollback is tried again. The caller holds the turn.
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
			if by == Itself { // else it is not tried again
				k.pending.failure = err.Error()
			}
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
			g.State, g.Why, g.ended = RolledBack, why, k.since
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

// A Bound limits how far a counter may rise.
type Bound struct {
	Counter string
	Most    int64 // largest increase within the bound
}

// ParseBound reads "failures>50": the bound is passed once the counter has risen by more than 50 since the change. With
// ">=" the number itself passes the bound. Spaces are allowed. The error wraps [ErrOptions].
func ParseBound(text string) (Bound, error) {
	name, number, found := strings.Cut(text, ">")
	name, number = strings.Trim(name, " "), strings.Trim(number, " ")
	switch {
	case !found:
		return Bound{}, boundError(text, "there is no '>'")
	case name == "":
		return Bound{}, boundError(text, "the name of a counter is missing")
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
		return Bound{}, boundError(text, fmt.Sprintf("%q is not the name of a counter", name))
	}
	number, atLeast := strings.CutPrefix(number, "=")
	number = strings.Trim(number, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case number == "":
		return Bound{}, boundError(text, "the number is missing")
	case err != nil:
		return Bound{}, boundError(text, fmt.Sprintf("%q is not a whole number", number))
	case n < 0, atLeast && n == 0:
		return Bound{}, boundError(text, "the condition is always true")
	case atLeast:
		n--
	}
	return Bound{Counter: name, Most: n}, nil
}

func boundError(text, what string) error {
	return fmt.Errorf("%w: rollback-if %q: %s: write a counter and the most that it may rise, such as 'failures>50'", ErrOptions, text, what)
}

// String returns the bound in the form that [ParseBound] takes.
func (b Bound) String() string { return fmt.Sprintf("%s>%d", b.Counter, b.Most) }
