package health

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// A Panic tells when an upstream begins and ends to use its endpoints whether they are
// well or not, because too few are. It is safe for concurrent use.
type Panic struct {
	keeper  *Keeper
	subject string
	on      atomic.Bool // written under mu
	begun   atomic.Int64

	mu     sync.Mutex
	damper damper
}

// NewPanic returns the Panic of an upstream that has not any, called subject in what is
// told of it.
func NewPanic(k *Keeper, subject string) *Panic { return &Panic{keeper: k, subject: subject} }

// Look has it find out whether the upstream is in panic: see says so, and how many
// endpoints are usable, of how many. Whoever changes what see says calls Look afterwards.
// It locks only if something has changed, and calls see meanwhile.
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
	t := Transition{Subject: p.subject, What: Panicking, State: "calm", Time: p.keeper.cfg.Now()}
	if on {
		p.begun.Add(1)
		t.State, t.Bad = "panic", true
	}
	t.Cause = fmt.Sprintf("%d of %d endpoints are usable", usable, of)
	p.keeper.note(&p.damper, t)
}

// Begun returns how many times it began.
func (p *Panic) Begun() int64 { return p.begun.Load() }
