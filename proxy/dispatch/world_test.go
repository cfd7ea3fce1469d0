package dispatch_test

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

	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
	"github.com/penstock/penstock/proxy/health"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/source"
	"github.com/penstock/penstock/relay"
)

// A condition is what is the matter with a server, whatever anybody thinks of it.
type condition uint8

const (
	serving  condition = iota
	refusing           // nobody listens
	dropping           // segments go nowhere: connects time out
	cutting            // connections are made, and reset at once
	mute               // connections are made, and nothing comes
	conditions
)

func (c condition) String() string {
	return [...]string{"serving", "refusing", "dropping", "cutting", "mute"}[c]
}

// accepts reports whether a connection is made.
func (c condition) accepts() bool { return c != refusing && c != dropping }

// A server is an endpoint as it truly is.
type server struct {
	*dispatch.Endpoint
	addr  netip.AddrPort
	judge *health.Member
	check *health.Check

	mu    sync.Mutex
	is    condition
	turns []turn
}

// A turn is when a server's condition became another one.
type turn struct {
	at time.Duration
	to condition
}

func (s *server) now() condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is
}

// A world is an upstream as it is by default, the servers behind it, and the clients in front
// of it, within a bubble of synctest: time passes when nobody has anything to do.
type world struct {
	t        *testing.T
	start    time.Time
	keeper   *health.Keeper
	checker  *health.Checker
	outlier  *health.Outlier
	up       *dispatch.Upstream
	view     *dispatch.View
	listener *dispatch.Listener
	servers  []*server

	mu      sync.Mutex
	clients sync.WaitGroup
	served  int
	refused []lost
	longest time.Duration // that a client that was served has waited
}

// A lost client is one that was refused.
type lost struct {
	came, at time.Duration
	cause    error
}

// The defaults of package config.
var (
	defaultCheck = health.CheckConfig{
		Interval: 5 * time.Second, FastInterval: time.Second, Timeout: 2 * time.Second, Jitter: 0.2, Rise: 2, Fall: 3,
	}
	defaultOutlier = health.OutlierConfig{
		ConsecutiveFailures: 5, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 5 * time.Minute, MaxEjected: 0.5,
	}
	defaultBreaker = health.BreakerConfig{
		FailurePercentage: 60, Window: 30 * time.Second, MinVolume: 20, Open: time.Minute, TrialConnections: 5,
	}
	defaultBudget = health.BudgetConfig{Ratio: 0.2, Floor: 30, Window: 10 * time.Second}
	defaultView   = dispatch.ViewConfig{
		Attempts: 2, Backoff: 25 * time.Millisecond, MaxBackoff: 250 * time.Millisecond,
		QueueSize: 1024, QueueTimeout: 5 * time.Second, Hold: 3 * time.Second,
	}
)

const defaultConnect = 5 * time.Second

// newWorld returns a world with so many servers, which all serve, and with checks whose
// phases are by a seed. It is to be ended.
func newWorld(t *testing.T, servers int, seed uint64) *world {
	w := &world{t: t, start: time.Now()}
	w.keeper = health.NewKeeper(&health.KeeperConfig{Now: w.clock})
	w.checker = health.NewChecker(w.keeper, &health.CheckerConfig{Seed: seed})
	w.outlier = health.NewOutlier(w.keeper, &defaultOutlier)
	w.up = dispatch.NewUpstream("u", nil)
	vc := defaultView
	vc.Breaker = health.NewBreaker(w.keeper, "upstream u", nil, &defaultBreaker)
	vc.Budget = health.NewBudget(&defaultBudget)
	w.view = dispatch.NewView(w.up, &vc)
	var members []balance.Member
	for i := range servers {
		s := w.newServer(i)
		w.servers = append(w.servers, s)
		members = append(members, balance.Member{Endpoint: s.Endpoint.Endpoint, Weight: 1})
	}
	set := balance.NewSet(members, &balance.Config{OnRoom: w.up.Room}, nil)
	set.Attach()
	w.view.Use(set)
	w.listener = dispatch.NewListener(&dispatch.ListenerConfig{
		Name: "l", Door: new(dispatch.Door), Nudge: func() {}, Default: w.view, Now: w.clock, Connect: defaultConnect,
	})
	return w
}

func (w *world) newServer(i int) *server {
	s := &server{addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80)}
	addr := socket.Address{Network: "tcp", Name: s.addr.String()}
	e, _, err := w.up.Endpoint(addr.Name, addr, balance.EndpointConfig{ID: addr.Name, Weight: 1, Now: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	s.Endpoint = e
	s.judge = w.outlier.Add(addr.Name, e)
	e.SetJudge(s.judge)
	e.SetBreaker(health.NewBreaker(w.keeper, addr.Name, e, &defaultBreaker))
	cfg := defaultCheck
	cfg.Probe = s
	s.check = w.checker.Watch(addr.Name, e, &cfg)
	e.SetCheck(s.check)
	return s
}

// end waits for the clients, and ends the world.
func (w *world) end() {
	w.clients.Wait()
	w.checker.Close()
	w.keeper.Close()
}

func (w *world) clock() int64 { return int64(time.Since(w.start)) + 1 }

// turn has a server be in a condition from now on.
func (w *world) turn(i int, to condition) {
	s := w.servers[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is = to
	s.turns = append(s.turns, turn{time.Since(w.start), to})
}

// roundTrip is how long a segment and its answer take.
const roundTrip = time.Millisecond

// Probe implements [health.Prober]: it connects.
func (s *server) Probe(ctx context.Context) error {
	end, _ := ctx.Deadline()
	return s.connect(time.Until(end))
}

// connect is a connect(2), whose first segment is repeated after 1 s, 3 s and so on.
func (s *server) connect(timeout time.Duration) error {
	for wait := time.Second; ; wait *= 2 {
		time.Sleep(min(roundTrip, timeout))
		switch is := s.now(); {
		case is.accepts():
			return nil
		case is == refusing:
			return os.NewSyscallError("connect", syscall.ECONNREFUSED)
		case timeout <= wait:
			time.Sleep(timeout - roundTrip)
			return os.ErrDeadlineExceeded
		}
		time.Sleep(wait - roundTrip)
		timeout -= wait
	}
}

// client has a client come, and not wait for it.
func (w *world) client() {
	came := time.Since(w.start)
	w.clients.Go(func() {
		err := w.serve()
		w.mu.Lock()
		defer w.mu.Unlock()
		if now := time.Since(w.start); err != nil {
			w.refused = append(w.refused, lost{came, now, err})
		} else {
			w.served++
			w.longest = max(w.longest, now-came)
		}
	})
}

// serve does what package core does with a client.
func (w *world) serve() error {
	s := dispatch.NewWaitingSearch(w.listener, w.view)
	s.Begin(core.NewClient(source.TCP(netip.MustParseAddrPort("192.0.2.1:1")), netip.MustParseAddrPort("192.0.2.2:2")), w.clock())
	defer s.Close()
	for {
		switch step := s.Next(w.clock()); step.Do {
		case core.Connect:
			to := w.servers[slices.IndexFunc(w.servers, func(s *server) bool { return s.addr == step.Address.AddrPort })]
			if err := to.connect(step.Timeout); err != nil {
				s.Failed(err, w.clock())
				continue
			}
			limits, err := s.Reached(w.clock())
			if err != nil {
				return err
			}
			w.session(to, limits)
			return nil
		case core.Pause:
			time.Sleep(step.Timeout)
		case core.Park:
			w.park(step.Timeout, s.Woken())
		default:
			return s.Err()
		}
	}
}

func (w *world) park(d time.Duration, woken <-chan struct{}) {
	var after <-chan time.Time
	if d > 0 {
		after = time.After(d)
	}
	select {
	case <-after:
	case <-woken:
	}
}

// session is a client's, which goes on by itself.
func (w *world) session(with *server, limits *relay.Limits) {
	w.clients.Go(func() {
		var r relay.Result
		switch with.now() {
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
		limits.Of.(core.Bond).Ended(r, nil)
	})
}

// come has clients come for so long, evenly.
func (w *world) come(perSecond int, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second / time.Duration(perSecond)) {
		w.client()
	}
}

// report says who was refused.
func (w *world) report() string {
	text := fmt.Sprintf("%d served, the longest after %v, %d refused", w.served, w.longest, len(w.refused))
	for _, l := range w.refused[:min(len(w.refused), 3)] {
		text += fmt.Sprintf("; %v came, %v: %v", l.came, l.at, l.cause)
	}
	return text
}
