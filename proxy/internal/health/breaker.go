package health

import (
	"sync"
	"sync/atomic"
	"time"
)

// BreakerConfig configures when a [Breaker] opens, and its connection limits.
type BreakerConfig struct {
	// FailurePercentage is the part of failed connections within Window at which it opens, if
	// there were at least MinVolume; 0: it never opens.
	FailurePercentage float64
	Window            time.Duration
	MinVolume         int
	// Open is how long it stays open. Then it is half-open, and lets TrialConnections through
	// (at least one). If all of them succeed it closes; if one fails it opens again. Trials
	// without a report for Open are made once more.
	Open             time.Duration
	TrialConnections int
	// Connections limits concurrent connections, pending ones included. Pending limits
	// connects in progress. 0: no limit.
	Connections, Pending int64
}

// A State is the state of a [Breaker].
type State uint8

const (
	// Closed: every connection is let through.
	Closed State = iota
	// Open: no connection is let through.
	Open
	// HalfOpen: some connections are let through, for trial.
	HalfOpen
)

// String returns "closed", "open" or "half-open".
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// A Refusal is the reason for which a [Breaker] does not let a connection through.
type Refusal uint8

const (
	// Granted: the connection is let through.
	Granted Refusal = iota
	// RefusedOpen: the breaker is open.
	RefusedOpen
	// RefusedTrials: the breaker is half-open, and all trials are in progress.
	RefusedTrials
	// RefusedConnections: the connection limit is reached.
	RefusedConnections
	// RefusedPending: the limit of connects in progress is reached.
	RefusedPending

	refusals // number of values
)

// String returns the reason, in a few words.
func (r Refusal) String() string {
	return [...]string{"granted", "circuit open", "circuit half-open", "connections limit", "pending limit"}[r]
}

// A Permit is issued to a connection that is let through, and is reported with its result. So
// the result counts for the period in which the connection began. The zero Permit belongs to
// no connection: a result reported with it counts as long as the breaker is closed.
type Permit uint32

// Trial reports whether the connection is a trial, for which an Outcome must be reported, if
// only Unknown.
func (p Permit) Trial() bool { return p&1 != 0 }

func (p Permit) period() uint64 { return uint64(p >> 1) }

// A Breaker stops the connections to an upstream, or to an endpoint, if too many of them fail.
// It is safe for concurrent use. For each connection, call in this order:
//
//   - Begin once, and nothing else unless it is Granted;
//   - Reached once, if it is connected;
//   - Report once: for a trial always, for others if it has failed;
//   - End once.
//
// None of them allocates. They lock only to change the state and for the last trial.
type Breaker struct {
	scheduler *Scheduler
	subject   string
	target    Target
	set       atomic.Pointer[setting]
	word      atomic.Uint64 // a word
	load      atomic.Uint64 // pending connections in the high 32 bits, all of them in the low 32 bits
	refused   [refusals]atomic.Int64
	opened    atomic.Int64
	sources   sources
	last      failure

	mu     sync.Mutex // held while the state is changed
	until  int64      // end of the open state, or of the trials in progress
	early  earlyTrial
	damper damper
	first  setting // the first configuration: most have no other
}

// A setting is the configuration of a Breaker. It is replaced as a whole.
type setting struct {
	BreakerConfig
	window *window // nil: failures are not counted
	own    window  // window points to it, unless window is that of the setting before
}

const pendingOne = 1 << 32

// NewBreaker returns a closed Breaker, called subject in its transitions. t receives its
// state, and may be nil.
func NewBreaker(k *Scheduler, subject string, t Target, cfg *BreakerConfig) *Breaker {
	b := &Breaker{scheduler: k, subject: subject, target: t}
	b.first.init(cfg)
	b.set.Store(&b.first)
	b.word.Store(uint64(newWord(Closed, 1)))
	return b
}

func (s *setting) init(cfg *BreakerConfig) {
	s.BreakerConfig = *cfg
	s.TrialConnections = min(max(s.TrialConnections, 1), wordMax)
	if s.FailurePercentage > 0 {
		s.own.width = slotWidth(cfg.Window)
		s.window = &s.own
	}
}

// Configure replaces the configuration. The state and the number of connections stay. If
// failures are no longer counted, the Breaker closes.
func (b *Breaker) Configure(cfg *BreakerConfig) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, s := b.set.Load(), new(setting)
	s.init(cfg)
	if s.window != nil && old.window != nil && s.window.width == old.window.width {
		s.window = old.window
	}
	b.set.Store(s)
	switch w := word(b.word.Load()); {
	case w.state() == Closed:
	case s.window == nil:
		b.become(Closed, b.scheduler.cfg.Now(), "it is configured not to open")
	case w.state() == HalfOpen && w.succeeded() >= uint64(s.TrialConnections):
		b.become(Closed, b.scheduler.cfg.Now(), enough(w))
	default:
		b.publish()
	}
}

// State returns the state.
func (b *Breaker) State() State { return word(b.word.Load()).state() }

// Load returns the number of connections, and how many of these are pending.
func (b *Breaker) Load() (connections, pending int64) {
	n := b.load.Load()
	return int64(n % pendingOne), int64(n / pendingOne)
}

// Full reports whether the limits let no further connection through.
func (b *Breaker) Full() bool {
	s := b.set.Load()
	connections, pending := b.Load()
	return s.Connections > 0 && connections >= s.Connections || s.Pending > 0 && pending >= s.Pending
}

// Refused returns the number of connections refused for a reason.
func (b *Breaker) Refused(r Refusal) int64 { return b.refused[r].Load() }

// Opened returns how many times it has opened, from closed or half-open.
func (b *Breaker) Opened() int64 { return b.opened.Load() }

// Begin asks to let a connection through.
func (b *Breaker) Begin() (Permit, Refusal) {
	s := b.set.Load()
	if r := b.enter(s); r != Granted {
		b.refused[r].Add(1)
		return 0, r
	}
	p, r := b.permit(s)
	if r != Granted {
		b.End(false)
		b.refused[r].Add(1)
	}
	return p, r
}

// enter counts a connection if the limits allow it.
func (b *Breaker) enter(s *setting) Refusal {
	if s.Connections <= 0 && s.Pending <= 0 {
		b.load.Add(pendingOne + 1)
		return Granted
	}
	for {
		n := b.load.Load()
		if s.Connections > 0 && n%pendingOne >= uint64(s.Connections) {
			return RefusedConnections
		}
		if s.Pending > 0 && n/pendingOne >= uint64(s.Pending) {
			return RefusedPending
		}
		if b.load.CompareAndSwap(n, n+pendingOne+1) {
			return Granted
		}
	}
}

// Reached reports that a connection was made. It counts as a success until Report says
// otherwise: sessions may last for days. No Breaker opens by it, though it may be the
// connection that completes MinVolume.
func (b *Breaker) Reached() {
	b.load.Add(^uint64(pendingOne - 1))
	s := b.set.Load()
	if w := word(b.word.Load()); s.window != nil && w.state() == Closed {
		s.window.add(b.scheduler.cfg.Now(), false)
	}
}

// Adopt counts a connection that is there already, beyond the limits, too. [Breaker.End] is owed for it, as one that was reached. It does nothing on a nil *Breaker.
func (b *Breaker) Adopt() {
	if b != nil {
		b.load.Add(1)
	}
}

// End reports that a connection is over. reached says whether Reached was called for it.
func (b *Breaker) End(reached bool) {
	if reached {
		b.load.Add(^uint64(0))
	} else {
		b.load.Add(^uint64(pendingOne))
	}
}
