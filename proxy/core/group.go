//go:build linux

package core

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/upstream"
	"github.com/penstock/penstock/relay"
)

// Config sets up a [Group]. What has no default said is required.
type Config struct {
	// Loops is how many there are, 0 for GOMAXPROCS; BusyPoll and KeepPolicy are as in
	// [loop.Config].
	Loops      int
	BusyPoll   time.Duration
	KeepPolicy bool
	// Now is the clock, as in [loop.Config]; nil means the system's.
	Now func() int64

	Listeners      []Listener
	Relay          *relay.Relay
	Upstream       *upstream.Group
	Options        socket.Options // of the sockets that connect
	MaxConnections int
	Host           Host
}

// A Listener is a listening socket.
type Listener struct {
	FD      int // non-blocking; borrowed until [Host.Closed]
	TCP     bool
	Backlog int // of the accept queue
}

// A Host is told what happens. Its methods are called on the goroutines of the
// loops, several at a time, and must not wait.
type Host interface {
	// Full is called with true when the limit is reached, and with false when there
	// is room again and nobody has waited for it; once at a time, and never twice in
	// a row with the same.
	Full(full bool)
	// Paused is called each time that accepting from a listener failed, and is
	// tried again later, with how many clients are served then, and how often that has
	// happened with this listener.
	Paused(listener int, cause error, active, pauses int64)
	// Closed is called once for each listener, when nobody accepts from it any more.
	Closed(listener int)
	// Trim gives descriptors back that are not needed now, and returns how many
	// things that were.
	Trim() int
	// Detailed reports whether the names of clients and endpoints are wanted.
	Detailed() bool
	// Refused is called when no target took a client, Ended when a session is over
	// that began while Detailed was true.
	Refused(client string, cause error)
	Ended(client, endpoint string, r relay.Result, err error)
}

// A Group is the cores of a proxy. Make it with [New].
type Group struct {
	cfg       Config
	loops     *loop.Group  // owned
	mem       *arena.Arena // owned; nil until it was made
	cores     []*core
	gate      gate
	waiting   queue
	clients   atomic.Int64 // that were accepted and have not left
	paused    atomic.Int64 // cores that cannot accept for want of something
	accepting atomic.Int64 // acceptors that are not closed
	finished  sync.Once
	done      chan struct{} // closed when there is nobody left
	started   atomic.Bool
	ended     chan struct{} // closed when the loops have ended
	lookups   sync.WaitGroup
	summing   sync.Mutex
	control   func() error // a test's: why a socket cannot be had
}

// New makes a Group. Clients wait until Serve. The caller calls Close in the end,
// also if Serve is never called.
func New(cfg *Config) (*Group, error) {
	g := &Group{cfg: *cfg, done: make(chan struct{}), ended: make(chan struct{})}
	g.gate.max, g.gate.tell = int64(cfg.MaxConnections), cfg.Host.Full
	var err error
	if g.loops, err = loop.NewGroup(cfg.Loops, &loop.Config{BusyPoll: cfg.BusyPoll, KeepPolicy: cfg.KeepPolicy, Now: cfg.Now}); err != nil {
		return nil, err
	}
	if err := g.open(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Group) open() error {
	var err error
	if g.mem, err = arena.New(&arena.Config{Locals: len(g.loops.Loops())}); err != nil {
		return err
	}
	for i, l := range g.loops.Loops() {
		c, err := newCore(g, l, g.mem.Local(i))
		if err != nil {
			return err
		}
		g.cores = append(g.cores, c)
	}
	for i, l := range g.cfg.Listeners {
		s := &shared{Listener: l, index: i}
		for _, c := range g.cores {
			if err := c.listen(s); err != nil {
				return fmt.Errorf("accept: %w", err)
			}
			s.open.Add(1)
			g.accepting.Add(1)
		}
	}
	return nil
}

// Serve serves clients until Drain or Cut, and then until all have left. It is
// called once. The error is that of a loop.
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

// finish ends Serve when nobody accepts and there is nobody left. A client is counted
// before who accepted it stops accepting, and whichever of the two ends last looks
// at both.
func (g *Group) finish() {
	if g.accepting.Load() == 0 && g.clients.Load() == 0 {
		g.finished.Do(func() { close(g.done) })
	}
}

// Drain stops accepting, after those that wait in the accept queues. It may be
// called at any time by any goroutine.
func (g *Group) Drain() {
	for _, c := range g.cores {
		c.post(c.close)
	}
}

// Cut stops accepting and ends all sessions; their results have the cause. It may
// be called at any time by any goroutine.
func (g *Group) Cut(cause error) {
	for _, c := range g.cores {
		c.post(func() { c.cut(cause) })
	}
}

// Active returns how many clients are served now: being connected to a target, or
// joined.
func (g *Group) Active() int64 { return g.gate.active.Load() }

// Summary returns what was done until now. Sessions that run are in it with what
// they have moved so far. It may be called at any time by any goroutine but those of
// the loops, which it asks.
func (g *Group) Summary() Summary {
	g.summing.Lock()
	defer g.summing.Unlock()
	sum := Summary{Arena: g.mem.Stats()}
	for _, c := range g.cores {
		part := g.ask(c)
		sum.merge(&part)
	}
	return sum
}

func (g *Group) ask(c *core) Summary {
	if !g.started.Load() {
		return Summary{Loops: []Load{{}}}
	}
	answer := make(chan Summary, 1)
	c.post(func() { c.beginWalk(answer) })
	select {
	case s := <-answer:
		return s
	case <-g.ended:
		return c.settled()
	}
}

// Close gives up what the group has. Serve must have returned, or never be called.
func (g *Group) Close() error {
	var errs []error
	for _, c := range g.cores {
		c.spares.Close()
		errs = append(errs, c.driver.Close())
	}
	g.lookups.Wait()
	if g.mem != nil {
		g.summing.Lock() // which reads what closing changes
		errs = append(errs, g.mem.Close())
		g.summing.Unlock()
	}
	return errors.Join(append(errs, g.loops.Close())...)
}
