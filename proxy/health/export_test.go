package health

import (
	"math"
	"time"
)

// A Window is a window.
type Window = window

func NewWindow(length time.Duration) *Window { return newWindow(length) }

func (w *window) Add(now int64, failed bool)        { w.add(now, failed) }
func (w *window) Sum(now int64) (ok, failed uint64) { return w.sum(now) }
func (w *window) Width() int64                      { return w.width }
func TooMany(ok, failed uint64, percent float64, vol int) bool {
	return tooMany(ok, failed, percent, vol)
}

// Preset has the slot of a time hold such counts.
func (w *window) Preset(now int64, ok, failed uint64) {
	slot, turn := w.at(now)
	slot.Store(turn | failed<<okBits | ok)
}

const (
	Slots = slots
	Full  = full
	Never = never
)

// NewIdleKeeper returns a Keeper without goroutines: Step does what is due, and Told
// returns what would have been told since it was called last.
func NewIdleKeeper(cfg *KeeperConfig) *Keeper { return newKeeper(cfg) }

func (k *Keeper) Step() int64 { return k.step(k.cfg.Now()) }

func (k *Keeper) Told() []Transition {
	k.voice.mu.Lock()
	defer k.voice.mu.Unlock()
	told := k.voice.untold
	k.voice.untold = nil
	return told
}

// NewIdleChecker returns a Checker without a scheduler: Step begins what is due and
// waits until those probes have ended.
func NewIdleChecker(k *Keeper, cfg *CheckerConfig) *Checker { return newChecker(k, cfg) }

func (c *Checker) Step() int64 {
	next := c.step(c.keeper.cfg.Now())
	c.ended.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 {
		next = c.queue[0].due
	}
	return next
}

// Asleep reports whether the scheduler sleeps for at least a minute.
func (c *Checker) Asleep() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asleep > c.keeper.cfg.Now()+int64(time.Minute)
}

// Asleep reports whether the Keeper sleeps for at least a minute.
func (k *Keeper) Asleep() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asleep > k.cfg.Now()+int64(time.Minute)
}

func (cfg *UnansweredConfig) Probe() time.Duration { return cfg.probe() }

// Suspicions returns how often an endpoint began to be suspected: by what its clients came to
// alone it would have been ejected.
func (u *Unanswered) Suspicions() int { return u.suspicions }

// SetChance has it be found unlikely enough what is less likely than 1 in 10 to the digits.
func (u *Unanswered) SetChance(digits float64) { u.chance = digits * math.Ln10 }

// A Blame is a blame.
type Blame = blame

func (b *blame) Note(from Source)         { b.note(from) }
func (b *blame) Worst() (Source, float64) { return b.worst() }
func (b *blame) Forget()                  { b.forget() }
