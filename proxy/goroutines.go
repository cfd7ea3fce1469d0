package proxy

import (
	"context"
	"iter"
	"net"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/source"
	"github.com/penstock/penstock/relay"
)

// goroutines is the driver that has a goroutine for each client until it is joined,
// and two for each session.
type goroutines struct {
	*Server
	limit    *listener.Limit
	spares   spares
	sessions sessions
	dial     func(context.Context) (net.Conn, error) // upstream's
}

func (s *Server) openGoroutines(ctx context.Context) error {
	g := &goroutines{Server: s, dial: s.upstream.Dial, limit: listener.NewLimit(s.cfg.MaxConnections)}
	s.driver = g
	g.limit.Tell(s.tellFull)
	return s.listen(ctx, func(i int) *listener.Config {
		return &listener.Config{
			Limit:   g.limit,
			Options: s.cfg.Socket,
			Reserve: g.spares.reserve,
			OnPause: func(cause error) {
				g.spares.trim()
				s.tellPaused(i, cause, int64(g.limit.Active()), s.listeners[i].Pauses())
			},
		}
	})
}

func (g *goroutines) serve(ctx context.Context) error {
	var serving sync.WaitGroup
	for _, l := range g.listeners {
		serving.Go(func() {
			g.tellUnclosed(l, l.Serve(ctx, g.handle))
		})
	}
	serving.Wait()
	return nil
}

func (g *goroutines) cutAll(cause error) {
	g.sessions.cutAll(cause)
	for _, l := range g.listeners {
		l.Close()
	}
}

func (g *goroutines) cutSome(chosen func() bool, cause error) { g.sessions.cutSome(chosen, cause) }

func (g *goroutines) active() int64 { return g.sessions.active() }

func (g *goroutines) summary() core.Summary { return g.sessions.summary() }

func (g *goroutines) list(ctx context.Context) iter.Seq[core.Session] { return g.sessions.list(ctx) }

func (g *goroutines) close() error {
	g.spares.close()
	return nil
}

// handle serves one client, from its acceptance to the start of its session, which
// goes on without the goroutine that handle is called on: the stack that dialing has
// grown is not kept for as long as the session lasts.
func (g *goroutines) handle(client net.Conn, release func()) {
	s := g.sessions.accept(client)
	if sourceless(client) {
		g.spares.release()
		g.refuse(s, source.ErrUnknown)
		release()
		return
	}
	endpoint, err := g.connect()
	if err != nil {
		g.refuse(s, err)
		release()
		return
	}
	session := g.relay.NewSession(client, endpoint)
	g.sessions.join(s, endpoint, session)
	ended := func(result relay.Result, err error) {
		g.sessions.end(s, result)
		if g.tellsAll() { // a connection of package net knows its addresses when it is closed, too
			g.tellEnded(address(client.RemoteAddr()), address(endpoint.RemoteAddr()), result, err)
		}
		release()
	}
	if g.cut.Err() != nil {
		session.Cut(context.Cause(g.cut))
	}
	if err := session.Start(ended); err != nil {
		ended(session.Result(), err) // two connections, and a new session: it does not happen
	}
}

// sourceless reports whether a client of TCP has come without its address, which package net
// has of accept4(2), as loops have it: that of a connection that was reset before, too.
func sourceless(client net.Conn) bool {
	if _, tcp := client.(*net.TCPConn); !tcp {
		return false
	}
	at, ok := client.RemoteAddr().(*net.TCPAddr)
	return !ok || !source.TCP(at.AddrPort()).Known()
}

// How long a connection that lacks a descriptor waits for one: dialPause at a time
// when no other connection ends first, and dialPatience in all. Without the
// latter, connections that were accepted with the last descriptors would wait for
// each other.
const (
	dialPause    = 100 * time.Millisecond
	dialPatience = 5 * time.Second
)

// connect connects to a target, if need be with the descriptor that was kept for
// it. While descriptors are short the client waits, as it would in the accept queue,
// and nobody else is accepted.
func (g *goroutines) connect() (net.Conn, error) {
	defer g.spares.release()
	conn, err := g.dial(g.cut)
	if core.LacksDescriptor(err) && g.spares.claim() {
		conn, err = g.dial(g.cut)
	}
	if !core.LacksDescriptor(err) {
		return conn, err
	}
	defer g.limit.Hold()()
	for end := g.after(dialPatience); core.LacksDescriptor(err); conn, err = g.dial(g.cut) {
		if g.trim() > 0 {
			continue
		}
		select {
		case <-g.limit.Released():
		case <-g.after(dialPause):
		case <-end:
			return nil, err
		case <-g.cut.Done():
			return nil, err
		}
	}
	return conn, err
}

// refuse resets a client that no target took: an orderly close would tell it that
// its server had nothing to say. (A unix socket has no reset; there it is an end
// of file unless the client had sent something, which makes it ECONNRESET.)
func (g *goroutines) refuse(s *served, cause error) {
	if tcp, ok := s.client.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	s.client.Close()
	g.sessions.refuse(s, cause, g.cut.Err() != nil)
	g.tellRefused(address(s.client.RemoteAddr()), cause)
}

// address names a peer; that of a unix socket has no name as a rule.
func address(a net.Addr) string {
	if a == nil {
		return ""
	}
	if a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return a.String()
}
