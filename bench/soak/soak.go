package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
)

// deathNotice is how long after its connections a process may be seen to die.
const deathNotice = 2 * time.Second

// The defaults of a Config.
const (
	usualPatience = 30 * time.Second
	usualRound    = 10 * time.Second
	laneRound     = 20 * time.Second // its sessions linger for half of that
	// A conversation of small messages has a thousand turns, and a loss in every tenth costs a timer of 200 ms or more.
	talkPatience = 5 * time.Minute
	talkRound    = 2 * time.Minute
)

// Config is the load of a proxy.
type Config struct {
	Program contestant.Program // which has `penstock proxy`
	Flags   []string           // further flags for it
	Seed    uint64             // of everything that is drawn
	// Lane has every second connection leave user space, over a loopback that loses, doubles and delays. It takes a
	// network namespace of this process's own: see [RunAlone].
	Lane        bool
	Duration    time.Duration // how long connections are opened
	Connections int           // how many there are at once
	// Messages has connections exchange small messages, and be opened until so many have come, in place of for a time; 0: neither.
	// With Lane it is switched off and on at random meanwhile, so that sessions come back and leave again.
	Messages int64

	// Round is how long a round is; 0 means 10 s, or half of Duration if that is less. With Lane it is 20 s, or all of
	// Duration; with Messages two minutes.
	Round time.Duration
	// Longest is how long a connection may pause; 0 means 3 s.
	Longest time.Duration
	// Patience is how long anything may take beside the pauses; 0 means 30 s, and with Messages five minutes.
	Patience time.Duration
	// Watch is called every second with the progress, from one goroutine; may be nil.
	Watch func(Progress) `json:"-"`

	settling time.Duration // settleTime if 0
}

func (c *Config) fill() {
	if c.Messages > 0 {
		c.Patience, c.Round = cmp.Or(c.Patience, talkPatience), cmp.Or(c.Round, talkRound)
	}
	c.Patience = cmp.Or(c.Patience, usualPatience)
	c.Longest = cmp.Or(c.Longest, longestIdle)
	round, settling := min(usualRound, max(c.Duration/2, time.Millisecond)), settleTime
	if c.Lane {
		round, settling = min(laneRound, c.Duration), laneSettleTime
	}
	c.settling = cmp.Or(c.settling, settling)
	c.Round = cmp.Or(c.Round, round)
}

// Progress is how it goes.
type Progress struct {
	Elapsed  time.Duration
	Round    int
	Opened   int64 // connections, ever
	Arrived  int64 // sends that have come whole, of connections that are over
	Active   int64 // as the proxy says
	RssAnon  int64 // of the proxy, in bytes
	Settling bool  // no connections are opened, the open ones come to their end
}

var (
	errViolated = errors.New("something was violated")
	errDied     = errors.New("the proxy has ended")
)

// soak is a run.
type soak struct {
	Config
	proxy  *contestant.Contestant
	stays  string // with Lane: the address of the listener whose sessions stay in user space
	link   link
	origin *origin
	round  atomic.Pointer[round]
	tally  tally
	began  time.Time
	ledger ledger
	ctx    context.Context         // of the run
	cancel context.CancelCauseFunc // ends it

	mu         sync.Mutex
	violations []string // of mu
}

// violate notes a violation, and ends the run: later ones may be its consequence. An effect of
// the end of the run is no violation.
func (s *soak) violate(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.violations = append(s.violations, texts...)
	}
	s.cancel(errViolated)
}

// Run soaks a proxy. The error is the reason why it could not, or the cause of the end of ctx.
// The proxy's faults are in the report. The report is nil only if Run could not even begin.
func Run(ctx context.Context, cfg *Config) (*Report, error) {
	s := &soak{Config: *cfg, began: time.Now()}
	s.fill()
	group := process.NewGroup()
	defer group.Close()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.ctx, s.cancel = inner, cancel
	o, l, err := s.listen(inner)
	if err != nil {
		return nil, err
	}
	s.origin = o
	s.newRound(0, s.began)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel(nil)
	serving.Go(func() {
		if err := o.serve(inner, l); err != nil {
			cancel(fmt.Errorf("origin: %w", err))
		}
	})
	dir, err := os.MkdirTemp("", "penstock-")
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := s.start(inner, group, dir); err != nil {
		return nil, err
	}
	if cfg.Lane {
		if err := s.link.open(); err != nil {
			return nil, fmt.Errorf("soak: %w", err)
		}
		defer s.link.close()
	}
	err = s.conclude(ctx, s.rounds(inner))
	return s.report(), err
}

// start starts the proxy and opens the books.
func (s *soak) start(ctx context.Context, group *process.Group, dir string) (err error) {
	setting := &contestant.Setting{Group: group, Program: s.Program, Upstream: s.origin.address, Dir: dir}
	kind := contestant.Penstock("penstock", "", s.Flags...)
	if s.Lane {
		kind = contestant.Leaving()
	}
	s.proxy, err = kind.Start(ctx, setting)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-s.proxy.Done():
			s.cancel(errDied)
		case <-ctx.Done():
		}
	}()
	if err := s.ledger.open(ctx, s); err != nil || !s.Lane {
		return err
	}
	return s.bothListen(s.ledger.first.Account)
}

// enough reports whether all messages have come that are to; without Messages it never is.
func (s *soak) enough() bool { return s.Messages > 0 && s.tally.done[arrivals].Load() >= s.Messages }

// rounds soaks until the time is over, or the messages have come, or something is violated.
func (s *soak) rounds(ctx context.Context) error {
	end := time.Now().Add(s.Duration)
	for n := uint32(1); ctx.Err() == nil && !s.enough() && (s.Messages > 0 || time.Now().Before(end)); n++ {
		until := time.Now().Add(s.Round)
		if s.Messages == 0 && end.Sub(until) < s.Round/2 {
			until = end // no short one at the end
		}
		if err := s.oneRound(ctx, s.newRound(n, until)); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// oneRound opens connections, waits for their ends, and closes the ledger.
func (s *soak) oneRound(ctx context.Context, r *round) error {
	watching, stop := context.WithCancel(ctx)
	var watch, workers sync.WaitGroup
	watch.Go(func() { s.watch(ctx, watching, r) })
	if s.Lane && s.Messages > 0 {
		watch.Go(func() { s.flips(ctx, watching, r.n) })
	}
	for range s.Connections {
		workers.Go(func() { r.connect(ctx) })
	}
	workers.Wait()
	stop()
	watch.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.ledger.close(ctx, s, r)
}

// conclude ends the proxy and says how the run ended.
func (s *soak) conclude(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		s.proxy.Kill()
		return context.Cause(ctx)
	case errors.Is(err, errViolated), errors.Is(err, errDied):
		s.autopsy()
		return nil
	case err != nil:
		s.proxy.Kill()
		return err
	}
	if err := s.proxy.Stop(s.Patience); err != nil {
		s.violations = append(s.violations, fmt.Sprintf("the proxy: expected exit status 0 after SIGTERM with no connection, got %v", err))
	}
	return nil
}

// autopsy says first that the proxy has died, if it has, which may have caused
// everything else.
func (s *soak) autopsy() {
	select {
	case <-s.proxy.Done():
		s.violations = slices.Insert(s.violations, 0, fmt.Sprintf("the proxy: expected to run, got %v", s.proxy.Err()))
	case <-time.After(deathNotice):
		s.proxy.Kill()
	}
}
