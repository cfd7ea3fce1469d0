package health

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// KeeperConfig sets up a [Keeper].
type KeeperConfig struct {
	// Now is the clock, in nanoseconds, the one by which connections are reported. Nil
	// means time since the Keeper was made.
	Now func() int64

	// Tell is told of each transition once, but of those that go on at most once in
	// TellEvery of each kind of each subject; see [Flap]. It is called by one goroutine that does nothing else,
	// so it may wait. May be nil.
	Tell func(Transition)

	// TellEvery is that interval; 0 means that all are told.
	TellEvery time.Duration
}

// A Keeper does what is due at a time: it ends ejections, lets breakers try again, and
// has transitions told. One serves a whole process. It has a goroutine that sleeps
// until something is due, and one that tells. It is safe for concurrent use.
type Keeper struct {
	cfg   KeeperConfig
	noted atomic.Int64
	wake  chan struct{} // the one that does what is due
	voice voice
	stop  chan struct{}
	ended sync.WaitGroup

	mu     sync.Mutex
	due    dueHeap
	asleep int64 // until when the goroutine sleeps; awake if it does not
	closed bool
}

// NewKeeper returns a Keeper, which is to be closed after all that uses it.
func NewKeeper(cfg *KeeperConfig) *Keeper {
	k := newKeeper(cfg)
	k.ended.Go(k.run)
	k.ended.Go(func() { k.voice.run(k.stop) })
	return k
}

// newKeeper returns a Keeper that has no goroutines.
func newKeeper(cfg *KeeperConfig) *Keeper {
	k := &Keeper{cfg: *cfg, wake: make(chan struct{}, 1), stop: make(chan struct{}), asleep: awake}
	if k.cfg.Now == nil {
		start := time.Now()
		k.cfg.Now = func() int64 { return int64(time.Since(start)) }
	}
	k.voice.tell, k.voice.wake = k.cfg.Tell, make(chan struct{}, 1)
	return k
}

// Transitions returns how many there were, told or not.
func (k *Keeper) Transitions() int64 { return k.noted.Load() }

// Close ends the Keeper, and returns when its goroutines have ended and what was to be
// told has been, what is held back because it flaps included. What is ejected or open
// then stays so. It is called once, and not by Tell.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	left := k.due
	k.due = nil
	k.mu.Unlock()
	for _, what := range left {
		if d, ok := what.what.(*damper); ok {
			d.rest()
		}
	}
	close(k.stop)
	k.ended.Wait()
}

// run is the goroutine that does what is due.
func (k *Keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-k.wake:
		case <-timer.C:
		}
		now := k.cfg.Now()
		if next := k.step(now); next != never {
			timer.Reset(time.Duration(max(next-now, 0)))
		}
	}
}

// step does what is due, and returns when it is to be called next.
func (k *Keeper) step(now int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asleep = awake
	for len(k.due) > 0 && k.due[0].at <= now {
		what := heap.Pop(&k.due).(due).what
		k.mu.Unlock()
		what.turn(now)
		k.mu.Lock()
	}
	k.asleep = never
	if len(k.due) > 0 {
		k.asleep = k.due[0].at
	}
	return k.asleep
}

// at has what called at a time.
func (k *Keeper) at(when int64, what timed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	heap.Push(&k.due, due{when, what})
	if when < k.asleep {
		nudge(k.wake)
	}
}

// nudge has a goroutine look again whether there is something to do.
func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// note takes a transition, to be told as its damper says.
func (k *Keeper) note(d *damper, t Transition) {
	k.noted.Add(1)
	if next, held := d.note(k, t); held {
		k.at(next, d)
	}
}

// A damper is the Flap of one kind of transitions of one subject. Most subjects have none
// for as long as they live.
type damper struct {
	mu     sync.Mutex
	flap   *flapping // nil before the first transition
	keeper *Keeper
	muted  bool // transitions are no news
}

type flapping struct {
	Flap
	last Transition
	said string // the state of the last transition that was not muted
}

// mute has transitions not be told, or told again. Then the last one is, if it has led to
// another state than the one that was told last.
func (d *damper) mute(k *Keeper, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.muted = on; on || d.flap == nil || k.cfg.Tell == nil {
		return
	}
	last := d.flap.last
	if last.State == d.flap.said || d.flap.said == "" && !last.Bad {
		return
	}
	if next, held := d.say(last); held {
		k.at(next, d)
	}
}

// note tells of a transition or, if that is held and none was before, returns when it
// is to be told.
func (d *damper) note(k *Keeper, t Transition) (next int64, held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flap == nil {
		d.flap, d.keeper = new(flapping), k
	}
	d.flap.last = t
	if k.cfg.Tell == nil || d.muted {
		return 0, false
	}
	return d.say(t)
}

// say is note for a transition that is news. The damper is locked.
func (d *damper) say(t Transition) (next int64, held bool) {
	k := d.keeper
	d.flap.said = t.State
	_, waiting := d.flap.Next(k.cfg.TellEvery)
	if t, ok := d.flap.Note(t, k.cfg.TellEvery); ok {
		k.voice.say(t)
		return 0, false
	}
	next, _ = d.flap.Next(k.cfg.TellEvery)
	return next, !waiting
}

// turn tells what was held.
func (d *damper) turn(now int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.flap.Due(now, d.keeper.cfg.TellEvery); ok {
		d.keeper.voice.say(t)
	}
}

// rest tells what is held, because nothing will be told any more.
func (d *damper) rest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.flap.Rest(); ok {
		d.keeper.voice.say(t)
	}
}
