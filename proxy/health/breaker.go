package health

import (
	"sync"
	"sync/atomic"
	"time"
)

// BreakerConfig says when a [Breaker] opens, and how many connections it bears.
type BreakerConfig struct {
	// FailurePercentage is the part of the connections that fail within Window from
	// which on it opens, if there were at least MinVolume; 0: it never does.
	FailurePercentage float64
	Window            time.Duration
	MinVolume         int
	// Open is how long it stays open. Then it is half-open, and TrialConnections are
	// let through (at least one); if all of them succeed it closes, if one fails it is
	// open again. Trials of which nothing was heard for Open are made once more.
	Open             time.Duration
	TrialConnections int
	// Connections is how many there may be at once, being made included, and Pending
	// how many may be being made at once; 0: any number.
	Connections, Pending int64
}

// A State of a [Breaker].
type State uint8

const (
	// Closed: everybody is let through.
	Closed State = iota
	// Open: nobody is.
	Open
	// HalfOpen: some are, for trial.
	HalfOpen
)

// String returns "closed", "open" or "half-open".
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// A Refusal is why a [Breaker] does not let a connection through.
type Refusal uint8

const (
	// Granted: it does.
	Granted Refusal = iota
	// RefusedOpen: it is open.
	RefusedOpen
	// RefusedTrials: it is half-open, and all trials are under way.
	RefusedTrials
	// RefusedConnections: there are as many connections as there may be.
	RefusedConnections
	// RefusedPending: as many as may be are being made.
	RefusedPending

	refusals // how many there are
)

// String says why, in a few words.
func (r Refusal) String() string {
	return [...]string{"granted", "circuit open", "circuit half-open", "connections limit", "pending limit"}[r]
}

// A Permit is what a connection was let through with, and is reported with, so that
// what comes of it counts for the time in which it began. The zero Permit is nobody's:
// what is reported with it counts as long as the breaker is closed.
type Permit uint32

// Trial reports whether the connection is a trial, of which an Outcome must be
// reported, if only Unknown.
func (p Permit) Trial() bool { return p&1 != 0 }

func (p Permit) period() uint64 { return uint64(p >> 1) }

// A Breaker stops the connections to an upstream, or to an endpoint, of which too many
// fail. It is safe for concurrent use. For each connection, in this order:
//
//   - Begin once, and nothing else unless it is Granted;
//   - Reached once, if it is connected;
//   - Report once: for a trial always, for others if it has failed;
//   - End once.
//
// None of them allocates; none locks, but to change the state and for the last trial.
type Breaker struct {
	keeper  *Keeper
	subject string
	target  Target
	set     atomic.Pointer[setting]
	word    atomic.Uint64 // see word
	load    atomic.Uint64 // pending connections above all of them, 32 bits each
	refused [refusals]atomic.Int64
	opened  atomic.Int64
	sources sources
	last    failure

	mu     sync.Mutex // held while the state is changed
	until  int64      // of being open, or of the trials under way
	haste  haste
	damper damper
	first  setting // what it began with: most have no other
}

// A setting is what a Breaker is configured with. It is replaced as a whole.
type setting struct {
	BreakerConfig
	window *window // nil: failures are not counted
	own    window  // which window is, unless it is that of the setting before
}

const pendingOne = 1 << 32

// NewBreaker returns a closed Breaker, called subject in what is told of it. t is told
// of its state, and may be nil.
func NewBreaker(k *Keeper, subject string, t Target, cfg *BreakerConfig) *Breaker {
	b := &Breaker{keeper: k, subject: subject, target: t}
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

// Configure replaces the configuration. The state and the number of connections stay;
// one that has failures no more counted closes.
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
		b.become(Closed, b.keeper.cfg.Now(), "it is configured not to open")
	case w.state() == HalfOpen && w.succeeded() >= uint64(s.TrialConnections):
		b.become(Closed, b.keeper.cfg.Now(), enough(w))
	default:
		b.publish()
	}
}

// State returns the state.
func (b *Breaker) State() State { return word(b.word.Load()).state() }

// Load returns how many connections there are, and how many of these are being made.
func (b *Breaker) Load() (connections, pending int64) {
	n := b.load.Load()
	return int64(n % pendingOne), int64(n / pendingOne)
}

// Refused returns how many connections were refused for a reason.
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

// enter counts a connection if there is room for it.
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

// Reached tells that a connection was made. It counts as one that succeeded, unless it
// is reported to have failed after all: sessions may last for days. No Breaker opens by it, though it
// may be the one that makes up MinVolume.
func (b *Breaker) Reached() {
	b.load.Add(^uint64(pendingOne - 1))
	s := b.set.Load()
	if w := word(b.word.Load()); s.window != nil && w.state() == Closed {
		s.window.add(b.keeper.cfg.Now(), false)
	}
}

// End tells that a connection is over; reached says whether Reached was called for it.
func (b *Breaker) End(reached bool) {
	if reached {
		b.load.Add(^uint64(0))
	} else {
		b.load.Add(^uint64(pendingOne))
	}
}
