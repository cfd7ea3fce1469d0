package dispatch

import (
	"crypto/tls"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/header"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/terminate"
)

// Handed is what is known of a client that was handed over to a goroutine, beside what
// package core knows.
type Handed struct {
	Listener *Listener
	// ALPN is what the client's hello offers, if it was looked at.
	ALPN []string

	view  *View
	over  *terminate.Conn // the client's TLS, which has ended here; nil: it has not
	tls   tls.ConnectionState
	woken chan struct{}
}

// Terminated notes that the client's TLS has ended in this process, and returns what was agreed upon.
func (h *Handed) Terminated(over *terminate.Conn) *tls.ConnectionState {
	h.over, h.tls = over, over.ConnectionState()
	return &h.tls
}

// conn returns the client's TLS that has ended in this process, nil if it has not.
func (h *Handed) conn() *terminate.Conn {
	if h == nil {
		return nil
	}
	return h.over
}

// NewSearch returns a search that goes on where the client was handed over.
func (h *Handed) NewSearch() *Search {
	h.woken = make(chan struct{}, 1)
	return &Search{listener: h.Listener, handed: h}
}

// Woken says that a search that was handed over and parks is to be asked again.
func (s *Search) Woken() <-chan struct{} { return s.handed.woken }

// waker returns what wakes the search when it parks.
func (s *Search) waker() core.Waker {
	if s.handed == nil {
		return s.client.Waker()
	}
	woken := s.handed.woken
	return core.WakerFunc(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
}

// Options are those of the sockets that connect.
func (s *Search) Options() socket.Options { return s.listener.cfg.Options }

// TLS returns what is spoken with the endpoint that is being connected to, nil for what
// the client sends, and the endpoint's host.
func (s *Search) TLS() (*terminate.Client, string) {
	if s.view == nil || s.endpoint == nil {
		return nil, ""
	}
	return s.view.TLS, s.endpoint.host
}

// tell adds what is known of the client's TLS to what endpoints are told of it.
func (h *Handed) tell(of *header.Connection) {
	if h.conn() == nil {
		return
	}
	of.Authority, of.ALPN = h.tls.ServerName, h.tls.NegotiatedProtocol
	of.TLS = header.TLSOf(&h.tls)
}
