package proxy

import (
	"context"
	"iter"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/relay"
)

const haveLoops = true

// loops is the driver that has event loops and no goroutine for anything.
type loops struct {
	*core.Group
	server *Server
}

// openLoops takes the listening sockets out of the hands of package net: they are
// the loops' to accept from, and stay the listeners' to close.
func (s *Server) openLoops(ctx context.Context) error {
	cfg := &core.Config{
		Loops: s.cfg.Loops, BusyPoll: s.cfg.BusyPoll, KeepPolicy: s.cfg.KeepPolicy, TurnCPU: s.cfg.TurnCPU, Relay: s.relay,
		MaxConnections: s.cfg.MaxConnections, Host: (*host)(s),
	}
	service := &core.Service{Options: s.cfg.Socket, NewSearch: core.SearchOf(s.upstream)}
	err := s.listen(ctx, func(int) *listener.Config { return &listener.Config{Options: s.cfg.Socket} })
	if err != nil {
		return err
	}
	for i, l := range s.listeners {
		fd, err := l.Detach()
		if err != nil {
			return err
		}
		cfg.Listeners = append(cfg.Listeners, core.Listener{
			Name: l.Addr(), FD: fd, TCP: l.TCP(), Backlog: l.Backlog(), Service: service, Of: i,
		})
	}
	group, err := core.New(cfg)
	if err != nil {
		return err
	}
	s.driver = &loops{group, s}
	return nil
}

func (d *loops) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		for _, l := range d.server.listeners {
			d.server.tellUnclosed(l, l.Unlink()) // nobody finds it any more, before its queue is emptied
		}
		d.Drain()
	})
	defer stop()
	return d.Serve()
}

func (d *loops) cutAll(cause error) { d.Cut(cause) }

func (d *loops) cutSome(chosen func() bool, cause error) {
	d.CutMatching(func(*core.Listening, core.Bond) bool { return chosen() }, cause)
}

func (d *loops) active() int64 { return d.Active() }

func (d *loops) summary() core.Summary { return d.Summary() }

func (d *loops) list(ctx context.Context) iter.Seq[core.Session] { return d.Sessions(ctx) }

func (d *loops) close() error { return d.Close() }

// host is a Server as the loops see it.
type host Server

func (h *host) server() *Server { return (*Server)(h) }

func (h *host) Full(full bool) { h.server().tellFull(full) }

func (h *host) Paused(at *core.Listening, cause error, active, pauses int64) {
	h.server().tellPaused(at.Of.(int), cause, active, pauses)
}

func (h *host) Closed(at *core.Listening) {
	l := h.listeners[at.Of.(int)]
	h.server().tellUnclosed(l, l.Close())
}

func (h *host) Left(*core.Listening) {}

func (h *host) Trim() int { return h.server().trim() }

func (h *host) Detailed() bool { return h.server().tellsAll() }

func (h *host) Refused(_ *core.Listening, client string, cause error) {
	h.server().tellRefused(client, cause)
}

func (h *host) Ended(s *core.Session, r relay.Result, err error) {
	h.server().tellEnded(s.Client, s.Endpoint, r, err)
}
