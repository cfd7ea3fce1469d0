package router_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

// A world is an upstream, the servers behind it, and the clients in front of it, within a bubble
// of synctest: time passes when all goroutines are blocked.
type world struct {
	setting
	t        *testing.T
	start    time.Time
	keeper   *health.Scheduler
	checker  *health.Checker
	outlier  *health.OutlierDetector
	upstream *router.Upstream
	snapshot *router.UpstreamSnapshot
	listener *router.Listener
	servers  []*server
	holding  router.Places

	clients sync.WaitGroup
	mu      sync.Mutex
	served  int
	refused []lost
	longest time.Duration // that a client that was served has waited
	wrong   []string      // violations that were found
}

// A lost client is one that was refused.
type lost struct {
	came, at time.Duration
	cause    error
	could    []string // the servers that could serve it, and since when
}

// A setting is the configuration of an upstream. nil: it has none of this.
type setting struct {
	limits      []int // of each server; 0: none
	seed        uint64
	connect     time.Duration
	check       *health.CheckConfig
	outlierless bool
	breaker     *health.BreakerConfig
	budget      health.RetryBudgetConfig
	snapshot    router.SnapshotConfig
	policy      lb.Policy
}

// defaults are those of package config, for so many servers.
func defaults(servers int) setting {
	return setting{
		limits: make([]int, servers), seed: 1, connect: 5 * time.Second,
		check: &health.CheckConfig{
			Interval: 5 * time.Second, FastInterval: time.Second, Timeout: 2 * time.Second, Jitter: 0.2, Rise: 2, Fall: 3,
		},
		breaker: &health.BreakerConfig{
			FailurePercentage: 60, Window: 30 * time.Second, MinVolume: 20, Open: time.Minute, TrialConnections: 5,
		},
		budget: health.RetryBudgetConfig{Ratio: 0.2, Floor: 30, Window: 10 * time.Second},
		snapshot: router.SnapshotConfig{
			Attempts: 2, Backoff: 25 * time.Millisecond, MaxBackoff: 250 * time.Millisecond,
			QueueSize: 1024, QueueTimeout: 5 * time.Second, Hold: 3 * time.Second,
		},
	}
}

// newWorld returns a world whose servers all serve. It is to be ended.
func newWorld(t *testing.T, of setting) *world {
	w := &world{t: t, start: time.Now(), setting: of}
	w.keeper = health.NewScheduler(&health.SchedulerConfig{Now: w.clock})
	w.checker = health.NewChecker(w.keeper, &health.CheckerConfig{Seed: of.seed})
	w.outlier = health.NewOutlierDetector(w.keeper, &health.OutlierConfig{
		ConsecutiveFailures: 5, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 5 * time.Minute, MaxEjected: 0.5,
	})
	w.upstream = router.NewUpstream("u", nil)
	w.upstream.HoldUnder(&w.holding)
	cfg := of.snapshot
	if of.breaker != nil {
		cfg.Breaker = health.NewBreaker(w.keeper, "upstream u", nil, of.breaker)
	}
	cfg.Budget = health.NewRetryBudget(&of.budget)
	w.snapshot = router.NewSnapshot(w.upstream, &cfg)
	var members []lb.Member
	for i, limit := range of.limits {
		s := w.newServer(i, limit)
		w.servers = append(w.servers, s)
		members = append(members, lb.Member{Endpoint: s.Endpoint.Endpoint, Weight: 1, Connections: limit})
	}
	set := lb.NewSet(members, &lb.Config{Policy: of.policy, OnRoom: w.upstream.Room}, nil)
	set.Attach()
	w.snapshot.SetEndpoints(set)
	w.listener = router.NewListener(&router.ListenerConfig{
		Name: "l", State: router.NewListenerState("", nil), Wake: func() {}, Default: w.snapshot, Now: w.clock, Connect: of.connect,
	})
	return w
}

func (w *world) newServer(i, limit int) *server {
	s := &server{addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80), limit: limit, clock: w.clock, noes: never}
	addr := sockopt.Address{Network: "tcp", Name: s.addr.String()}
	e, _, err := w.upstream.Endpoint(addr.Name, addr, lb.EndpointConfig{ID: addr.Name, Weight: 1, Now: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	s.Endpoint = e
	if !w.outlierless {
		monitor := w.outlier.NewMonitor(addr.Name, e)
		w.outlier.Join(monitor)
		e.SetMonitor(monitor)
	}
	if w.breaker != nil {
		e.SetBreaker(health.NewBreaker(w.keeper, addr.Name, e, w.breaker))
	}
	if w.check != nil {
		cfg := *w.check
		cfg.Probe = prober{s, cfg.Answered}
		e.SetCheck(w.checker.Watch(addr.Name, e, &cfg))
	}
	return s
}

// end waits for the clients, and ends the world.
func (w *world) end() {
	w.clients.Wait()
	w.checker.Close()
	w.keeper.Close()
	for _, s := range w.servers {
		if s.Active() != 0 {
			w.err("%s has %d sessions in the end", s.addr, s.Active())
		}
	}
	if n := w.holding.InUse(); n != 0 || w.upstream.Waiting() != 0 {
		w.err("%d are held and %d wait in the end", n, w.upstream.Waiting())
	}
	if b := w.snapshot.Breaker; b != nil {
		if connections, pending := b.Load(); connections != 0 || pending != 0 {
			w.err("%d connections, %d pending in the end", connections, pending)
		}
	}
}

func (w *world) err(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf("%v: ", w.now())+fmt.Sprintf(format, args...))
}

func (w *world) clock() int64       { return int64(w.now()) + 1 }
func (w *world) now() time.Duration { return time.Since(w.start) }

func (w *world) turn(i int, to condition) {
	s := w.servers[i]
	s.be(func() { s.is = to })
}

// client has a client come, and does not wait for it.
func (w *world) client() {
	came := w.now()
	w.clients.Go(func() {
		err := w.serve()
		at := w.now()
		if err != nil {
			could := w.could()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, lost{came, at, err, could})
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.served++
		w.longest = max(w.longest, at-came)
	})
}

func (w *world) servedSoFar() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served
}

func (w *world) serve() error {
	s := router.NewWaitingSearch(w.listener, w.snapshot)
	s.Begin(worker.NewClient(source.TCP(netip.MustParseAddrPort("192.0.2.1:1")), netip.MustParseAddrPort("192.0.2.2:2")), w.clock())
	defer s.Close()
	var tried []*server
	for {
		before := w.reachable(tried)
		switch step := s.Next(w.clock()); step.Action {
		case worker.Connect:
			to := w.servers[slices.IndexFunc(w.servers, func(s *server) bool { return s.addr == step.Address.AddrPort })]
			w.look(to)
			w.lookElsewhere(to, tried, before)
			if err := to.connect(step.Timeout, recheck{step.Recheck, func() bool { return s.Abandon(w.clock()) }}); err != nil {
				to.be(func() { to.vain++ })
				tried = append(tried, to)
				s.Failed(err, w.clock())
				continue
			}
			limits, err := s.Reached(w.clock())
			if err != nil {
				return err
			}
			w.session(to, limits)
			return nil
		case worker.Pause:
			time.Sleep(step.Timeout)
		case worker.Park:
			park(step.Timeout, s.Woken())
		default:
			return s.Err()
		}
	}
}

func park(d time.Duration, woken <-chan struct{}) {
	var after <-chan time.Time
	if d > 0 {
		after = time.After(d)
	}
	select {
	case <-after:
	case <-woken:
	}
}

// session is a client's, which continues by itself.
func (w *world) session(with *server, limits *relay.Limits) {
	w.clients.Go(func() {
		var r relay.Result
		switch is, _ := with.now(); is {
		case cutting:
			time.Sleep(roundTrip)
			r = relay.Result{Reason: relay.ReasonReset, Culprit: relay.SideB}
		case mute:
			time.Sleep(time.Second)
			r = relay.Result{Reason: relay.ReasonCanceled}
		default:
			time.Sleep(5 * roundTrip)
			r = relay.Result{Reason: relay.ReasonEOF, BToA: relay.Flow{Copied: 1, Reason: relay.ReasonEOF}}
		}
		with.be(func() { limits.Of.(worker.Binding).Ended(0, r, nil) })
	})
}

// come has clients come for so long, evenly.
func (w *world) come(perSecond int, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second / time.Duration(perSecond)) {
		w.client()
	}
}

func (w *world) report() string {
	text := fmt.Sprintf("%d served, the longest after %v, %d refused", w.served, w.longest, len(w.refused))
	for _, l := range w.refused[:min(len(w.refused), 3)] {
		text += fmt.Sprintf("; %v came, %v: %v %v", l.came, l.at, l.cause, l.could)
	}
	return text
}

// A condition is the true state of a server, whatever state others have for it.
type condition uint8

const (
	serving  condition = iota
	refusing           // no process listens
	dropping           // segments go nowhere: connects time out
	cutting            // connections are made, and reset at once
	mute               // connections are made, and nothing comes
	conditions
)

func (c condition) String() string {
	return [...]string{"serving", "refusing", "dropping", "cutting", "mute"}[c]
}

func (c condition) accepts() bool { return c != refusing && c != dropping }

// A role is the answer of a serving server to a check.
type role uint8

const (
	yes role = iota
	no
	saysNothing
	roles
)

func (r role) String() string { return [...]string{"yes", "no", "silent"}[r] }

// A server is an endpoint as it truly is.
type server struct {
	*router.Endpoint
	addr  netip.AddrPort
	limit int
	clock func() int64

	mu    sync.Mutex
	is    condition
	role  role
	out   bool  // by an operator
	since int64 // it has been able to serve; never: it is not
	noes  int64 // since when its checks are answered no; never: they are not
	yeses int64 // since when they are answered yes; never: they are not
	noted bool  // they may have been answered no
	vain  int   // unsuccessful connects of clients
}

func (s *server) be(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	could := s.can()
	change()
	switch can := s.can(); {
	case !can:
		s.since = never
	case !could:
		s.since = s.clock()
	}
	s.answers(&s.noes, no)
	s.answers(&s.yeses, yes)
	s.noted = s.noted || s.noes != never
}

// answers notes since when checks are answered so.
func (s *server) answers(since *int64, what role) {
	switch {
	case s.is != serving || s.role != what:
		*since = never
	case *since == never:
		*since = s.clock()
	}
}

// heard is how long it takes, at most, until a check that is answered yes makes up for one that
// was answered no.
const heard = 8 * time.Second

// couldSince is since when the server could serve; never: it cannot.
func (s *server) couldSince() int64 {
	s.be(func() {}) // it may have no room any more
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.noted || s.since == never {
		return s.since
	}
	if s.yeses == never {
		return never
	}
	return max(s.since, s.yeses+int64(heard))
}

const never = 1<<63 - 1

// can reports whether it accepts connections, and has room, and no operator has it out.
func (s *server) can() bool {
	return s.is.accepts() && !s.out && (s.limit == 0 || s.Active() < s.limit)
}

// roundTrip is how long a segment and its answer take.
const roundTrip = time.Millisecond

// A recheck asks at intervals whether a connect is to be given up; its zero value does not.
type recheck struct {
	every   time.Duration
	abandon func() bool
}

// sleep waits, and reports whether the connect is to be given up.
func (r recheck) sleep(d time.Duration) bool {
	for ; r.every > 0 && d > r.every; d -= r.every {
		time.Sleep(r.every)
		if r.abandon() {
			return true
		}
	}
	time.Sleep(d)
	return false
}

// connect is a connect(2), whose first segment is repeated after 1 s, 3 s and so on.
func (s *server) connect(timeout time.Duration, r recheck) error {
	for wait := time.Second; ; wait *= 2 {
		time.Sleep(min(roundTrip, timeout))
		switch is, _ := s.now(); {
		case is.accepts():
			return nil
		case is == refusing:
			return os.NewSyscallError("connect", syscall.ECONNREFUSED)
		case timeout <= wait:
			if r.sleep(timeout - roundTrip) {
				return record.ErrAbandoned
			}
			return os.ErrDeadlineExceeded
		}
		if r.sleep(wait - roundTrip) {
			return record.ErrAbandoned
		}
		timeout -= wait
	}
}

func (s *server) now() (condition, role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is, s.role
}

// A prober connects to a server, and requests its role.
type prober struct {
	of   *server
	asks bool
}

func (p prober) Probe(ctx context.Context) error {
	end, _ := ctx.Deadline()
	if err := p.of.connect(time.Until(end), recheck{}); err != nil || !p.asks {
		return err
	}
	time.Sleep(roundTrip)
	switch is, role := p.of.now(); {
	case is == cutting:
		return os.NewSyscallError("read", syscall.ECONNRESET)
	case is == serving && role == yes:
		return nil
	case is == serving && role == no:
		return fmt.Errorf("status 503: %w", health.ErrAnswer)
	}
	<-ctx.Done()
	return ctx.Err()
}
