package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

// Config sets up a [Group]. A field without a default is required.
type Config struct {
	// Loops is the number of loops, 0 for GOMAXPROCS. BusyPoll and KeepPolicy are as in [loop.Config].
	Loops      int
	BusyPoll   time.Duration
	KeepPolicy bool
	// TurnCPU switches [Load.Overruns] on, see [loop.Config].
	TurnCPU bool
	Memory  MemoryConfig // of the loops
	// Now is the clock, as in [loop.Config]; nil means the system's.
	Now func() int64

	Relay          *relay.Relay
	MaxConnections int
	// PrereadMemory bounds the memory of this process for the first bytes of all clients together; 0: 64 MiB. The
	// first 2 KiB of each client do not count. A client for which there is no room is refused.
	PrereadMemory int64
	Host          Host
}

// A Host is notified of events. Loops call its methods on their goroutines, several at a time; they must not wait.
// [Offloaded.End] calls Left, Refused and Ended too.
type Host interface {
	// Full is called with true when the limit is reached, and with false when there is room
	// again and no client has taken it. Calls do not overlap, and their values alternate.
	Full(full bool)
	// Paused is called each time that accepting from a listener failed and will be
	// tried again later. Its arguments are the number of clients that are served, and
	// how often accepting from this listener has failed.
	Paused(l *Listening, cause error, active, pauses int64)
	// Closed is called once for each socket, when no loop accepts from it any more: its
	// descriptor is no longer used. Afterwards Left is called once, when the last client of
	// the socket has left.
	Closed(l *Listening)
	Left(l *Listening)
	// Trim gives back descriptors that are not needed now, and returns how many things it has closed.
	Trim() int
	// Refused is called when a client was reset: by its Admitter, for its first bytes or the
	// lack of them (see [Preread]), or because no target took it.
	Refused(l *Listening, cause error)
	// Judge is called when a session has ended and the kernel's account of its connections was taken
	// ([relay.Config.LegsAfter]). It returns the verdict on what limited the session. Any goroutine
	// may call it. The binding is nil where there is none.
	Judge(b Binding, sample *verdict.Sample) verdict.Verdict
	// Records is asked for each accepted client whether a record is kept, with the ID that the record would have. If so,
	// Began is called when the client is joined to an endpoint, and Ended once at the client's end, whether it was joined
	// or not. The binding is nil if there is none. The record is valid during the call.
	Records(listener string, id record.ID) bool
	// Traces is asked before Records. It returns the number of the sampler that traces the client, 0 for none. The
	// record of a traced client is always kept.
	Traces(id record.ID) uint8
	Began(l *Listening, b Binding, r *record.Record)
	// Lasts is called by [Group.Progress].
	Lasts(l *Listening, b Binding, r *record.Record)
	Ended(l *Listening, b Binding, r *record.Record)
}

// A Group is the workers of a proxy. Make it with [New].
type Group struct {
	cfg       Config
	loops     *loop.Group  // owned
	mem       *arena.Arena // owned; nil until it is made
	workers   []*worker
	gate      connLimit
	waiting   queue
	prereads  atomic.Int64   // bytes that count against PrereadMemory
	paused    atomic.Int64   // workers that cannot accept for lack of a resource
	live      atomic.Int64   // sockets that are accepted from, or have clients
	draining  atomic.Bool    // no further sockets are listened on; written under mu
	handed    offloads       // clients that have left their loops
	stays     *tally.Reasons // sessions that stay in user space
	finished  sync.Once
	done      chan struct{} // closed when no client is left
	started   atomic.Bool
	ended     chan struct{} // closed when the loops have ended
	lookups   sync.WaitGroup
	returns   sync.WaitGroup
	returning chan struct{} // holds one for each session that is coming back from the lane
	summing   sync.Mutex
	metering  sync.Mutex   // taken before summing
	ids       record.IDs   // of records
	control   func() error // a test's error in place of a socket
	parts     func(func()) // runs a part of a scan; a test measures it

	mu         sync.Mutex
	listenings map[*Listening]struct{} // that are accepted from, or have clients; under mu
	listened   int                     // number of sockets so far; under mu
}

// New makes a Group. Clients wait until Serve is called. The caller calls Close in the end, even if it never calls Serve.
func New(cfg *Config) (*Group, error) {
	g := &Group{
		cfg: *cfg, stays: tally.NewReasons(stayTexts[:]...), ids: record.NewIDs(), done: make(chan struct{}), ended: make(chan struct{}), listenings: make(map[*Listening]struct{}),
		returning: make(chan struct{}, laneReturns),
		control:   func() error { return nil }, parts: func(part func()) { part() },
	}
	g.handed.clients = make(map[int64]*Offloaded)
	g.cfg.PrereadMemory = cmp.Or(cfg.PrereadMemory, 64<<20)
	g.gate.max.Store(int64(cfg.MaxConnections))
	g.gate.onFull = cfg.Host.Full
	if g.cfg.Now == nil {
		start := time.Now()
		g.cfg.Now = func() int64 { return int64(time.Since(start)) + 1 }
	}
	var err error
	if g.loops, err = loop.NewGroup(cfg.Loops, &loop.Config{BusyPoll: cfg.BusyPoll, KeepPolicy: cfg.KeepPolicy, TurnCPU: cfg.TurnCPU, Now: g.cfg.Now}); err != nil {
		return nil, err
	}
	if err := g.open(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Group) open() error {
	var err error
	if g.mem, err = g.cfg.Memory.open(len(g.loops.Loops())); err != nil {
		return err
	}
	for i, l := range g.loops.Loops() {
		w, err := newWorker(g, i, l, g.mem.Local(i))
		if err != nil {
			return err
		}
		g.workers = append(g.workers, w)
	}
	return nil
}

// Serve serves clients until Drain or Cut, and then until all have left. It is called
// once. The error comes from a loop.
func (g *Group) Serve() error {
	defer close(g.ended)
	g.started.Store(true)
	go func() {
		select {
		case <-g.done:
			g.loops.Stop()
		case <-g.ended:
		}
	}()
	err := g.loops.Run()
	if err != nil {
		g.finished.Do(func() { close(g.done) })
	}
	return err
}

// finish ends Serve if the group drains, no loop accepts and no client is left.
func (g *Group) finish() {
	if g.draining.Load() && g.live.Load() == 0 {
		g.finished.Do(func() { close(g.done) })
	}
}

// Drain stops accepting, once the accept queues are empty. Any goroutine may call it at any time.
func (g *Group) Drain() {
	for _, l := range g.end() {
		l.Close()
	}
	g.finish()
}

// end stops listening on further sockets, and returns the sockets that are left.
func (g *Group) end() []*Listening {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining.Store(true)
	return slices.Collect(maps.Keys(g.listenings))
}

// Cut stops accepting and ends all sessions; their results have the cause. It may
// be called at any time by any goroutine.
func (g *Group) Cut(cause error) {
	left := g.end()
	for _, w := range g.workers {
		w.post(func() { w.cut(cause) })
	}
	for _, l := range left {
		l.Close() // also a socket that no loop has opened yet
	}
	g.finish()
}

// Settle waits until the loops have performed earlier calls of Listen and Close, or until ctx
// or the group ends.
func (g *Group) Settle(ctx context.Context) error {
	done := make(chan struct{}, len(g.workers))
	for _, w := range g.workers {
		w.changes.give(func() { done <- struct{}{} })
	}
	for range g.workers {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		case <-g.ended:
			return ErrEnding
		}
	}
	return nil
}

// SetMaxConnections changes how many clients are served at a time. Clients beyond a lower limit
// stay.
func (g *Group) SetMaxConnections(limit int) {
	g.gate.max.Store(int64(limit))
	g.wake()
}

func (g *Group) wake() {
	for _, w := range g.workers {
		w.wake()
	}
}

// Active returns the number of clients that are served now: joined, or on their way to an endpoint.
func (g *Group) Active() int64 { return g.gate.active.Load() }

// Summary returns the present counters, including the bytes that running sessions have moved so far. It asks the loops, so
// any goroutine but theirs may call it.
func (g *Group) Summary() Summary { return g.summarize(nil) }

// summarize is Summary, and adds the bytes of running sessions to running, unless that is nil.
func (g *Group) summarize(running bytesByBinding) Summary {
	g.summing.Lock()
	defer g.summing.Unlock()
	sum := g.handed.summary()
	sum.Arena = g.mem.Stats()
	for _, w := range g.workers {
		part := g.ask(w, running)
		sum.merge(&part)
	}
	return sum
}

func (g *Group) ask(w *worker, running bytesByBinding) Summary {
	if !g.started.Load() {
		return Summary{Loops: []Load{{}}}
	}
	answer := make(chan Summary, 1)
	var of bytesByBinding // belongs to the worker until it has answered
	if running != nil {
		of = make(bytesByBinding)
	}
	w.post(func() { w.beginScan(answer, of) })
	s, ok := await(g, answer)
	if ok {
		for b, bytes := range of {
			running.of(b).Add(*bytes)
		}
		return s
	}
	if running != nil { // the group has ended, and so have the sessions that the scan missed
		w.flush()
	}
	return w.baseSummary()
}

// await returns what comes from a channel, or false if the group ends first.
func await[T any](g *Group, from <-chan T) (v T, ok bool) {
	select {
	case v = <-from:
		return v, true
	case <-g.ended:
		return v, false
	}
}

// onAll calls do on all loops, and result with what each passes to over. It returns when all have, or the group ends.
func onAll[T any](g *Group, do func(w *worker, over func(T)), result func(T)) {
	over := make(chan T, len(g.workers))
	for _, w := range g.workers {
		w.post(func() { do(w, func(v T) { over <- v }) })
	}
	for range g.workers {
		if v, ok := await(g, over); ok {
			result(v)
		}
	}
}

// call makes the loop call f, and returns f's error. f is not called if the loop has ended, for example after a failure.
func (w *worker) call(f func() error) (called bool, err error) {
	done := make(chan error, 1)
	if err := w.loop.Post(func() { done <- f() }); err != nil {
		return false, err
	}
	if err, called = await(w.group, done); called {
		return true, err
	}
	select {
	case err = <-done:
		return true, err
	default:
		return false, ErrEnding
	}
}

// Close releases the group's resources. Serve must have returned, or never be called.
func (g *Group) Close() error {
	var errs []error
	for _, w := range g.workers {
		w.trim(0)
		w.cutMirrors()
		errs = append(errs, w.driver.Close())
	}
	g.lookups.Wait()
	g.returns.Wait()
	if g.mem != nil {
		g.summing.Lock() // readers of a summary read fields that are closed here
		errs = append(errs, g.mem.Close())
		g.summing.Unlock()
	}
	return errors.Join(append(errs, g.loops.Close())...)
}

// MemoryConfig says in which memory loops keep bytes that slow destinations have not taken. The zero value takes the best
// kind that there is.
type MemoryConfig struct {
	// Pages is the kind of pages, as in [arena.Config]. RequireHuge makes New fail unless all of the memory is made of huge
	// pages; Pages must be PagesAuto then.
	Pages       arena.Pages
	RequireHuge bool
	// Mlock keeps the memory from being swapped out, as in [arena.Config].
	Mlock bool
	// Bound binds all memory to Node, and Unbound binds none. With neither, loops take turns at the nodes of the machine.
	// There is no node below 0.
	Bound, Unbound bool
	Node           int
}

// ErrHugePages is wrapped by the error of New if MemoryConfig.RequireHuge cannot be
// fulfilled.
var ErrHugePages = errors.New("huge pages cover only a part of the memory")

// Memory describes the memory of a group.
type Memory struct {
	Pages  arena.Pages // PagesReserved, PagesTransparent or PagesPlain
	Locked bool
	Nodes  []int // to which the memory is bound, by loop; nil: it is not bound
	// Fallback is why the pages are not of a better kind, and Unbound why the memory is not bound to the machine's several
	// nodes; nil: they are as they should be.
	Fallback, Unbound error
}

// Memory describes the group's memory, which does not change.
func (g *Group) Memory() Memory {
	m := Memory{Pages: g.mem.Pages(), Locked: g.cfg.Memory.Mlock, Fallback: g.mem.Fallback(), Unbound: g.mem.Unbound()}
	for i := range g.mem.Locals() {
		if n := g.mem.Local(i).Node(); n >= 0 {
			m.Nodes = append(m.Nodes, n)
		}
	}
	return m
}

// open makes the memory of the given number of loops. The caller owns it.
func (c *MemoryConfig) open(loops int) (*arena.Arena, error) {
	cfg := arena.Config{Locals: loops, Pages: c.Pages, Mlock: c.Mlock}
	if c.Bound || c.Unbound {
		node := -1
		if c.Bound {
			node = c.Node
		}
		cfg.Nodes = slices.Repeat([]int{node}, loops)
	}
	if !c.RequireHuge {
		return arena.New(&cfg)
	}
	var missed []error
	for _, pages := range [...]arena.Pages{arena.PagesReserved, arena.PagesTransparent} {
		cfg.Pages = pages
		mem, err := arena.New(&cfg)
		if err == nil {
			if err = whole(mem); err == nil {
				return mem, nil
			}
			err = errors.Join(err, mem.Close())
		}
		if errors.Is(err, arena.ErrLock) || errors.Is(err, arena.ErrBind) {
			return nil, err
		}
		missed = append(missed, fmt.Errorf("%v: %w", pages, err))
	}
	return nil, fmt.Errorf("%w: %w", ErrHugePages, errors.Join(missed...))
}

func whole(mem *arena.Arena) error {
	if s := mem.Stats(); s.Huge < s.Mapped {
		return fmt.Errorf("%d of %d bytes", s.Huge, s.Mapped)
	}
	return nil
}
