package worker

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// A Listener is a listening socket.
type Listener struct {
	FD int // non-blocking; borrowed until [Host.Closed]
	// TCP says that it is a TCP socket, not a unix socket. The options that connections
	// inherit from it are set already, SO_OOBINLINE and TCP_NODELAY among them
	// ([sockopt.Options]); connections of a unix socket inherit none.
	TCP bool
	// Local is the address to which all clients have connected. It is invalid if there
	// are several addresses, for example with TPROXY; then the kernel is asked for each
	// client.
	Local netip.AddrPort
	// Shared says that other processes have the same open file, and can make it blocking: systemd does so when it
	// starts a second service with the same socket (src/core/exec-invoke.c, flags_fds). So it is made non-blocking
	// before each accept4(2), or a loop could wait there.
	Shared  bool
	Service *Service // for the first clients
	// Of is a value by which the Host identifies the socket.
	Of any
}

// A Listening is a listening socket that a [Group] accepts from. Its methods may be
// called by any goroutine at any time.
type Listening struct {
	Listener
	group       *Group
	number      int // identifies the socket
	service     atomic.Pointer[Service]
	parts       []*acceptor // one for each worker, by index, which owns it
	openSockets atomic.Int32
	refs        atomic.Int64 // part for each worker that has not closed its own, and 1 for each client
	closing     atomic.Bool
	short       atomic.Int32          // workers that do not accept because of Admitter.CanAccept
	pauses      atomic.Int64          // failures to accept
	late        atomic.Pointer[error] // refuses clients without a session, with this cause; nil: they are not refused
}

// part is a worker's part among the refs of a Listening. More clients cannot be connected.
const part = 1 << 32

// ErrEnding is the error of a request to a group that drains, or whose loops have ended.
var ErrEnding = errors.New("the process drains and ends: wait for its end, or send SIGTERM once more to reset the remaining sessions now")

// Listen makes every loop accept clients from a socket. The loops begin soon; [Group.Settle] waits for that. A loop that
// fails to begin calls [Host.Paused], and tries again later. Listen may be called at any time by any goroutine.
func (g *Group) Listen(cfg Listener) (*Listening, error) {
	cfg.unblock()
	switch flags, err := sys.GetFl(cfg.FD); {
	case cfg.Service == nil || cfg.Service.NewSearch == nil:
		return nil, errors.New("listen: there is no Service, or it has no NewSearch")
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", cfg.Service.Name, os.NewSyscallError("fcntl", err))
	case flags&sys.O_NONBLOCK == 0:
		return nil, fmt.Errorf("listen on %s: %w", cfg.Service.Name, os.NewSyscallError("accept4", syscall.EINVAL))
	}
	l, err := g.newListening(cfg)
	if err != nil {
		return nil, err
	}
	for _, w := range g.workers {
		w.changes.give(func() { w.listen(l) })
	}
	return l, nil
}

func (l *Listener) unblock() {
	if l.Shared {
		_ = syscall.SetNonblock(l.FD, true)
	}
}

// maxBacklog is at least as long as any accept queue. It bounds the emptying of a queue that keeps filling.
const maxBacklog = 1 << 16

// newListening makes a socket known to the group.
func (g *Group) newListening(cfg Listener) (*Listening, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining.Load() {
		return nil, ErrEnding
	}
	l := &Listening{Listener: cfg, group: g, number: g.listened, parts: make([]*acceptor, len(g.workers))}
	g.listened++
	l.service.Store(cfg.Service)
	l.openSockets.Store(int32(len(g.workers)))
	l.refs.Store(int64(len(g.workers)) * part)
	for i, w := range g.workers {
		l.parts[i] = &acceptor{worker: w, socket: l}
	}
	g.listenings[l] = struct{}{}
	g.live.Add(1)
	return l, nil
}

// Unlistened returns a Listening for sessions of [Group.Adopt] with a listener that has no socket, or nil if everything is
// about to end. The caller calls Release once it has adopted them; [Host.Left] is called when the last one has left.
func (g *Group) Unlistened(service *Service) *Listening {
	l, err := g.newListening(Listener{FD: -1, TCP: true, Service: service})
	if err != nil {
		return nil
	}
	l.closing.Store(true)
	l.openSockets.Store(0)
	l.refs.Store(1)
	for _, a := range l.parts {
		a.closed = true
	}
	return l
}

// Service returns the service of clients that are accepted now.
func (l *Listening) Service() *Service { return l.service.Load() }

// Replace changes the service. Present clients keep theirs.
func (l *Listening) Replace(s *Service) {
	l.service.Store(s)
	l.Wake()
}

// Wake makes the loops ask [Admitter.CanAccept] again, if accepting pauses because of it.
func (l *Listening) Wake() {
	if l.short.Load() > 0 {
		l.group.wake()
	}
}

// Close stops accepting, after the clients in the accept queue. [Host.Closed] is called when this is done, and [Host.Left]
// when the last client has left. Calling Close again does nothing.
func (l *Listening) Close() {
	if l.closing.Swap(true) {
		return
	}
	for _, w := range l.group.workers {
		w.changes.give(func() { w.closeListening(l) })
	}
}

// RefuseLate refuses the clients of a socket that have no session yet: at once if their first bytes are incomplete or TLS is
// begun, otherwise before they get a session. The error is the cause, and wraps [ErrPrereadTimeout]. nil ends this.
func (l *Listening) RefuseLate(cause error) {
	if cause == nil {
		l.late.Store(nil)
		return
	}
	cause = fmt.Errorf("%w: %w", cause, ErrPrereadTimeout)
	l.late.Store(&cause)
	l.group.scanClients(func(w *worker, n *conn) {
		if n.state == connecting && n.ref.pending.listening == l && n.ref.pending.phase.prereads() {
			w.refuse(n.ref.pending, cause)
		}
	})
	l.group.handed.refuse(l, cause) // last: clients that have left their loops meanwhile are there
}

func (l *Listening) refusesLate() error {
	if cause := l.late.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Clients returns the number of present clients of this socket, including clients for which
// nothing was done yet.
func (l *Listening) Clients() int64 { return l.refs.Load() % part }

// Release ends the caller's part in a Listening of [Group.Unlistened]. It is also called at the end of a client.
func (l *Listening) Release() { l.release(1) }

// release ends a client, or a worker's part. A part ends after its clients are counted, so no client can come after the last
// release.
func (l *Listening) release(what int64) {
	if l.refs.Add(-what) > 0 {
		return
	}
	g := l.group
	g.mu.Lock()
	delete(g.listenings, l)
	g.mu.Unlock()
	g.cfg.Host.Left(l)
	g.live.Add(-1)
	g.finish()
}

// A listenerRef is the part that a conn shares with others: the Client while it is being connected, afterwards only its
// serving.
type listenerRef struct {
	serving *serving
	pending *Client // nil for a client that is joined
	kept    *kept   // the record of a joined client; nil: none is kept
}

// A serving belongs to one worker, one socket and one Service. It serves the clients
// that came in at that socket while it had that Service.
type serving struct {
	listenerRef
	worker       *worker
	socket       *Listening
	service      *Service
	lateSockopts *lateSockopts
	searches     stack[Search]
	clients      int
}

// servingOf returns how clients of a socket are served while it has a service.
func (w *worker) servingOf(l *Listening, service *Service) *serving {
	a := l.parts[w.index]
	if s := a.serving; s != nil {
		if s.service == service {
			return s
		}
		for _, s := range a.older {
			if s.service == service {
				return s
			}
		}
	}
	s := &serving{worker: w, socket: l, service: service, lateSockopts: w.lateSockoptsOf(service.Options)}
	s.listenerRef.serving = s
	older := s // unless s is the present one
	if service == l.service.Load() {
		a.serving, older = s, a.serving
	}
	if older == s || older != nil && older.clients > 0 { // a serving without clients is forgotten
		a.older = append(a.older, older)
	}
	return s
}

// leave is called when one of its clients has left.
func (s *serving) leave(w *worker) {
	if s.clients--; s.clients > 0 {
		return
	}
	a := s.socket.parts[w.index]
	a.older = without(a.older, s)
}
