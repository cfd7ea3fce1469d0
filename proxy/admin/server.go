package admin

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/internal/admission"
	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// maxConnections is the limit of concurrent connections, so that clients of the API cannot
// take the file descriptors of proxied clients.
const maxConnections = 64

// Timeouts of a client, which apply also while there is room for others.
const (
	headerTime = 5 * time.Second  // for sending the request
	writeTime  = 10 * time.Second // for reading the whole response
)

// Config sets up a [Server].
type Config struct {
	Balancer Balancer
	Reloader Reloader
	// Stop makes the process drain and end, as SIGTERM does. It returns at once.
	Stop func()
	// Metrics serves GET /metrics; nil: there is none.
	Metrics http.Handler
	// Process reports on what limits this process, for GET /v1/process; nil: there is no report.
	Process func() *doctor.Report
	// Page serves GET / and the files below /page/; nil: there is none.
	Page http.Handler
	// Version is that of the program.
	Version string
	// Log receives messages for an operator; nil: none are logged.
	Log *slog.Logger
	// Leaving reports whether the process is about to drain or drains, and when it begins to; nil: the state
	// of the Balancer does.
	Leaving func() (drainStarts time.Time, leaves bool)
	// Alive returns when every loop has responded, or with an error when ctx ends; nil: GET /livez does not
	// ask.
	Alive func(ctx context.Context) error
	// Opened is closed once the process has opened everything. A request before that waits for it, and is refused with
	// [ErrStarting] after a second; nothing else here is called until then. nil: it has.
	Opened <-chan struct{}
	// Self is the ID of the serving process. Its own connections over unix sockets are
	// refused. 0: none are.
	Self int
}

// A Server serves the admin API. It listens at one address at most, which may change. Create
// it with [New], make it listen with [Server.Prepare], and end it with [Server.Close].
type Server struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	http    http.Server
	conns   *admission.Limiter
	long    atomic.Bool // the last status was a long answer
	// inForce are the conditions by which clients are judged, whenever they have connected; nil: those of
	// their connections.
	inForce atomic.Pointer[conditions]
	serving sync.WaitGroup
	feed    *feed
	sinces  sinces

	document  func() *document
	drained   atomic.Bool                                 // a request has made the process drain
	profiling sync.Mutex                                  // held while a profile is taken
	sample    func(to io.Writer) (stop func(), err error) // sampleCPU, but in tests

	mu   sync.Mutex
	at   *address // nil: it does not listen
	left bool     // for good
}

// An address is an address at which a server listens.
type address struct {
	addr   sockopt.Address
	now    atomic.Pointer[conditions] // of the connections to come: with TLS, or without
	listen *listener.Listener         // owned by its Serve once that has begun
	stop   context.CancelFunc         // stops Serve
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, log: cfg.Log, started: time.Now(), conns: admission.New(maxConnections, writeTime), document: sync.OnceValue(makeDocument), sample: sampleCPU}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.long.Store(true) // until it is known
	s.feed = newFeed(s.current)
	s.http = http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTime,
		WriteTimeout:      writeTime, // for responses of net/http itself
		MaxHeaderBytes:    16 << 10,
		ConnContext:       admission.WithConn,
		// OPTIONS * is a request like any other, and refused.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(&errorLog{s.log}, "", 0),
	}
	// One request for each connection: a client with another request takes its turn with the
	// others.
	s.http.SetKeepAlivesEnabled(false)
	s.serving.Go(func() { _ = s.http.Serve(s.conns) }) // http.ErrServerClosed
	return s
}

// A Move is a prepared change of the address of a [Server]. Call Commit or Abort once.
type Move struct {
	server *Server
	next   *address    // nil: no address
	same   bool        // the address stays, the mode may change
	mode   fs.FileMode // of a path that stays
	now    *conditions // of an address that stays
}

// Prepare opens an address, and reads its files. If the server already listens there, no address is
// opened, and only the mode of the path and the conditions may change. A path that another process has
// left behind is taken over, and so is the address of a draining process. The error is one line.
func (s *Server) Prepare(ctx context.Context, a Access) (*Move, error) {
	if a.Bind == "" {
		return &Move{server: s}, nil
	}
	addr, conditions, err := a.open(s.log)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	same := s.at != nil && s.at.addr.Network == addr.Network && s.at.addr.Name == addr.Name
	s.mu.Unlock()
	if same {
		return &Move{server: s, same: true, mode: addr.Mode, now: conditions}, nil
	}
	l, err := s.listen(ctx, addr, &a)
	if err != nil {
		return nil, err
	}
	next := &address{addr: addr, listen: l}
	next.now.Store(conditions)
	return &Move{server: s, next: next}, nil
}

// Abort cancels the change. Everything stays as it is.
func (m *Move) Abort() error {
	if m.next == nil {
		return nil
	}
	return m.next.listen.Close()
}

// Commit makes the server listen at the new address and no longer at the old one. Clients
// connected to the old one still get their response, if the new conditions let them.
func (m *Move) Commit() {
	switch {
	case m.next != nil:
		m.server.inForce.Store(m.next.now.Load())
	case m.same:
		m.server.inForce.Store(m.now)
	default: // no address: no token, no certificate and no group is good
		m.server.inForce.Store(new(conditions))
	}
	m.commit()
}

func (m *Move) commit() {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.same {
		s.setMode(m.mode)
		if s.at != nil {
			s.at.now.Store(m.now)
		}
		return
	}
	if m.next != nil && s.left {
		_ = m.Abort() // the address was not announced
		return
	}
	before := s.at
	s.at = m.next
	if m.next != nil {
		s.serve(m.next)
	}
	if before != nil {
		before.stop()
		<-before.listen.Closed() // soon; it must be possible to return there at once
	}
}

// setMode changes the mode of the path at which it listens. The caller holds s.mu.
func (s *Server) setMode(mode fs.FileMode) {
	if s.at == nil { // the server has left
		return
	}
	if err := s.at.listen.SetMode(mode); err != nil {
		s.log.Warn("the mode of the admin socket is not changed", "address", s.at.listen.Addr(), "error", err)
	}
}

// take serves a connection, unless this process itself has made it over a unix socket. Then an
// endpoint leads here, and its client would pass for the user of this process.
func (s *Server) take(at *address, conn net.Conn, release func()) {
	if s.cfg.Self > 0 && int(userOf(conn).pid) == s.cfg.Self {
		s.log.Warn("admin refuses a connection of this process itself: an endpoint leads to it")
		conn.Close()
		release()
		return
	}
	g := s.guest(conn, at.now.Load())
	with := g.conditions.tls
	if g.unix {
		with = nil
	}
	s.conns.Put(conn, with, g.mayHave(), g, release)
}

// serve accepts connections at an address until it is stopped.
func (s *Server) serve(p *address) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	s.log.Info("admin listens", "address", p.listen.Addr())
	s.serving.Go(func() {
		take := func(conn net.Conn, release func()) { s.take(p, conn, release) }
		if err := p.listen.Serve(ctx, take); err != nil {
			s.log.Warn("closing the admin socket failed", "address", p.listen.Addr(), "error", err)
		}
	})
}

// Addr returns the address of the server, with the port that the kernel chose, or "" if it
// does not listen.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		return ""
	}
	return s.at.listen.Addr()
}

// Leave stops listening for good, whatever is committed later, so that another process can
// listen. Connected clients still get their response; streams of events end.
func (s *Server) Leave() {
	(&Move{server: s}).commit()
	s.mu.Lock()
	s.left = true
	s.mu.Unlock()
	s.feed.end()
}

// Close ends the server. Responses under way have until ctx ends. When it returns, no
// goroutine and no connection of the server is left.
func (s *Server) Close(ctx context.Context) error {
	s.Leave()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.serving.Wait()
	s.feed.looking.Wait()
	return err
}

// current returns the current status, with the fields that a balancer does not know.
func (s *Server) current() Status {
	st := s.cfg.Balancer.Status()
	s.fill(&st)
	return st
}

// fill fills in the fields that a balancer does not know.
func (s *Server) fill(st *Status) {
	st.PID, st.Version, st.Started = os.Getpid(), s.cfg.Version, s.started
	of := s.cfg.Reloader.Generations()
	st.Generation, st.GenerationSince, st.Pending = of.Current, of.Since, of.Pending
	if starts, leaves := s.leaving(); leaves && st.State == Serving {
		st.DrainStarts = starts
	}
	if c := s.inForce.Load(); c != nil {
		st.AdminCertificates = CertificatesOf(c.pair)
	}
	now := time.Now()
	st.Problems = problems(st, now)
	s.sinces.note(st.Problems, now)
}
