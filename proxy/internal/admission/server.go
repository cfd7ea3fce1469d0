package admission

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A Server serves the clients of a [Limiter] at one address at most, which may change. Create it with [NewServer], make it
// listen with [Server.Prepare], and end it with [Server.Close]. Its methods are safe for concurrent use.
type Server struct {
	Conns *Limiter

	http    *http.Server
	take    func(conn net.Conn, release func())
	name    string // of the server, for the log
	log     *slog.Logger
	serving sync.WaitGroup

	mu   sync.Mutex
	at   *place // nil: the server does not listen
	left bool   // it does not listen any more, for good
}

// A place is an address at which a server listens.
type place struct {
	addr   sockopt.Address
	listen *listener.Listener // its Serve owns it once it has begun
	stop   context.CancelFunc // stops Serve
}

// NewServer returns a server that does not listen yet. most is the largest number of connections at once. h has its
// handler and its timeouts. take puts an accepted connection into Conns, or closes it and calls release.
func NewServer(name string, most int, log *slog.Logger, h *http.Server, take func(conn net.Conn, release func())) *Server {
	s := &Server{Conns: New(most, h.WriteTimeout), http: h, take: take, name: name, log: log}
	h.Handler, h.ConnContext, h.MaxHeaderBytes = Handler(h.Handler), WithConn, 16<<10
	h.DisableGeneralOptionsHandler = true         // OPTIONS * is refused like any other unknown request
	h.SetKeepAlivesEnabled(false)                 // a client's next request takes its turn with the others
	s.serving.Go(func() { _ = h.Serve(s.Conns) }) // returns http.ErrServerClosed
	return s
}

// A Move is a prepared change of the address of a [Server]. Call Commit or Abort once.
type Move struct {
	server *Server
	addr   sockopt.Address    // the new address, with the mode
	listen *listener.Listener // for another address; nil: none was opened
	shares *listener.Listener // the former listener, if both share a part of their addresses until Commit or Abort
	none   bool               // the server is to have no address
}

// PrepareNone is Prepare for no address.
func (s *Server) PrepareNone() *Move { return &Move{server: s, none: true} }

// Prepare opens an address with listen, unless the server listens there already: then only the mode of the path may
// change. If the path was removed or replaced, it is created again. The new address may share a part of the present address: :9464
// has a part of 127.0.0.1:9464.
func (s *Server) Prepare(ctx context.Context, addr sockopt.Address, listen func() (*listener.Listener, error)) (*Move, error) {
	s.mu.Lock()
	same := s.at != nil && s.at.addr.Network == addr.Network && s.at.addr.Name == addr.Name
	gone, at := same && s.at.listen.Gone(), s.at
	s.mu.Unlock()
	if same && !gone {
		return &Move{server: s, addr: addr}, nil
	}
	l, err := listen()
	if gone && err != nil {
		s.log.Warn("the path of a socket was removed or replaced, and cannot be created again", "of", s.name, "address", addr, "error", err)
		return &Move{server: s, addr: addr}, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) && at != nil && at.addr.Network == "tcp" && addr.Network == "tcp" {
		if l, failed := s.beside(ctx, addr, at.listen); failed == nil {
			return &Move{server: s, addr: addr, listen: l, shares: at.listen}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &Move{server: s, addr: addr, listen: l}, nil
}

// beside opens a TCP address that shares a part of the present address. It fails if something else than the present
// listener is in the way.
func (s *Server) beside(ctx context.Context, addr sockopt.Address, at *listener.Listener) (*listener.Listener, error) {
	if err := at.SetReusePort(true); err != nil {
		return nil, err
	}
	l, err := listener.Bind(ctx, addr, &listener.Config{Limit: s.Conns.Limit()})
	if err == nil {
		if err = syscall.EADDRINUSE; l.Overlaps(at) {
			err = l.Start(at)
		}
		if err != nil {
			l.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(err, at.ClearReusePort())
	}
	return l, nil
}

// Abort cancels the change. Everything stays as it is.
func (m *Move) Abort() error {
	if m.listen == nil {
		return nil
	}
	err := m.listen.Close()
	if m.shares != nil {
		err = errors.Join(err, m.shares.ClearReusePort())
	}
	return err
}

// Commit makes the server listen at the new address and no longer at the old one. Clients of the old address still get
// their responses.
func (m *Move) Commit() {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.at
	switch {
	case m.listen != nil && s.left:
		_ = m.Abort() // the new address was not announced
		return
	case m.listen != nil:
		s.at = s.serve(m.addr, m.listen)
	case m.none:
		s.at = nil
	default:
		s.setMode(&m.addr)
		return
	}
	if before != nil {
		before.stop()
		<-before.listen.Closed() // a short wait, so that a return to this address is possible at once
	}
	if m.shares != nil {
		if err := m.listen.ClearReusePort(); err != nil {
			s.log.Warn("other processes of this user may take the address of a socket too", "of", s.name, "address", m.addr, "error", err)
		}
	}
}

// setMode changes the mode of the path at which the server listens. The caller holds mu.
func (s *Server) setMode(addr *sockopt.Address) {
	if s.at == nil { // the server has left
		return
	}
	if err := s.at.listen.SetMode(addr.Mode); err != nil {
		s.log.Warn("the mode of a socket could not be changed", "of", s.name, "address", s.at.listen.Addr(), "error", err)
	}
}

// serve accepts connections at an address until it is stopped. The caller holds mu.
func (s *Server) serve(addr sockopt.Address, l *listener.Listener) *place {
	ctx, stop := context.WithCancel(context.Background())
	s.log.Info(s.name+" listens", "address", l.Addr())
	s.serving.Go(func() {
		if err := l.Serve(ctx, s.take); err != nil {
			s.log.Warn("a socket could not be closed", "of", s.name, "address", l.Addr(), "error", err)
		}
	})
	return &place{addr, l, stop}
}

// Addr returns the address, with the port that the kernel chose, or "" if the server does not listen.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		return ""
	}
	return s.at.listen.Addr()
}

// Gone reports whether the path of the server's socket was removed or replaced.
func (s *Server) Gone() bool {
	s.mu.Lock()
	at := s.at
	s.mu.Unlock()
	return at != nil && at.listen.Gone()
}

// Leave stops listening for good, whatever is committed later. Connected clients still get their responses.
func (s *Server) Leave() {
	s.mu.Lock()
	s.left = true // before its address is given up: no Commit comes in between
	s.mu.Unlock()
	s.PrepareNone().Commit()
}

// Close ends the server. Responses in progress have until ctx ends. When Close returns, no goroutine and no connection of
// the server is left.
func (s *Server) Close(ctx context.Context) error {
	s.Leave()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.serving.Wait()
	return err
}
