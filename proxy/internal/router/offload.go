package router

import (
	"crypto/tls"

	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Offloaded is the state of a client that was handed over to a goroutine, beside [worker.Offloaded].
type Offloaded struct {
	Listener *Listener
	// Startup is the startup message of a PostgreSQL client, if its TLS ends here: the endpoint gets
	// it first.
	Startup []byte

	way
	gate     *filter.Filter // see Search
	unrouted bool           // the route depends on bytes that are still to be read
	over     *tlsterm.Conn  // the client's TLS, if it ends here
	tls      tls.ConnectionState
	woken    chan struct{}
}

// Terminated notes that the client's TLS has ended in this process, and returns the negotiated
// state.
func (h *Offloaded) Terminated(over *tlsterm.Conn) *tls.ConnectionState {
	h.over, h.tls = over, over.ConnectionState()
	return &h.tls
}

// conn returns the client's TLS connection that ends in this process, or nil.
func (h *Offloaded) conn() *tlsterm.Conn {
	if h == nil {
		return nil
	}
	return h.over
}

// NewSearch returns a search that continues where the client was handed over.
func (h *Offloaded) NewSearch() *Search {
	h.woken = make(chan struct{}, 1)
	return &Search{listener: h.Listener, offloaded: h}
}

// Woken receives when a parked search on a goroutine is to be asked again.
func (s *Search) Woken() <-chan struct{} { return s.offloaded.woken }

func (s *Search) waker() worker.Waker {
	if s.offloaded == nil {
		return s.client.Waker()
	}
	woken := s.offloaded.woken
	return worker.WakerFunc(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
}

// Options returns the options of the sockets that connect.
func (s *Search) Options() sockopt.Options { return s.listener.cfg.Options }

// Record returns the record of the client; nil: none is kept.
func (s *Search) Record() *record.Record { return s.client.Record }

// TLS returns the TLS client for the endpoint of the present connect, and the endpoint's host. It is nil if the client's
// bytes are passed on as they are.
func (s *Search) TLS() (*tlsterm.Client, string) {
	if s.snapshot == nil || s.endpoint == nil {
		return nil, ""
	}
	return s.snapshot.TLS, s.endpoint.host
}

// Startup returns the bytes that were read from the client. The endpoint gets them first.
func (s *Search) Startup() []byte {
	if s.offloaded == nil {
		return nil
	}
	return s.offloaded.Startup
}

// StartsTLS reports whether the endpoint that is being connected to is asked for TLS in PostgreSQL's protocol.
func (s *Search) StartsTLS() bool { return s.snapshot != nil && s.snapshot.StartTLS }
