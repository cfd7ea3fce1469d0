package health

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// A Panic reports when an upstream begins and ends to use its endpoints regardless of their
// health, because too few are healthy. It is safe for concurrent use.
type Panic struct {
	keeper  *Scheduler
	subject string
	on      atomic.Bool // written under mu
	begun   atomic.Int64

	mu     sync.Mutex
	damper damper
}

// NewPanic returns the Panic of an upstream that is calm, called subject in its transitions.
func NewPanic(k *Scheduler, subject string) *Panic { return &Panic{keeper: k, subject: subject} }

// Look checks whether the upstream is in panic: see returns that, and how many endpoints are
// usable, of how many. It must be called after each change of the result of see. It locks only
// if something has changed, and calls see with the lock held.
func (p *Panic) Look(panicking bool, see func() (panicking bool, usable, of int)) {
	if panicking == p.on.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	on, usable, of := see()
	if on == p.on.Load() {
		return
	}
	p.on.Store(on)
	t := Transition{Subject: p.subject, Kind: Panicking, State: "calm", Time: p.keeper.cfg.Now()}
	if on {
		p.begun.Add(1)
		t.State, t.Bad = "panic", true
	}
	t.Cause = fmt.Sprintf("%d of %d endpoints are usable", usable, of)
	p.keeper.note(&p.damper, t)
}

// Begun returns the number of panics.
func (p *Panic) Begun() int64 { return p.begun.Load() }
