package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/internal/admission"
	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// maxConnections limits concurrent connections, so that clients of the API cannot use up the descriptors for proxied
// clients.
const maxConnections = 64

// Timeouts of a client. They apply even while there is room for more clients.
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
	// Metrics serves GET /metrics. It may be nil.
	Metrics http.Handler
	// Process reports what limits this process, for GET /v1/process. It may be nil.
	Process func() *doctor.Report
	// Page serves GET / and the files below /page/. It may be nil.
	Page http.Handler
	// Version is the version of the program.
	Version string
	// Log receives messages for an operator. It may be nil.
	Log *slog.Logger
	// Leaving reports whether the process drains or is about to, and when the drain begins. If it is nil, the state of
	// the Balancer decides.
	Leaving func() (drainStarts time.Time, leaves bool)
	// Alive returns when every loop has responded, or an error when ctx ends. If it is nil, GET /livez does not ask the
	// loops.
	Alive func(ctx context.Context) error
	// Opened is closed once the process has opened everything. An earlier request waits for at most a second, and is
	// then refused with [ErrStarting]. Before that no other function of this struct is called. A nil Opened means that
	// everything is open.
	Opened <-chan struct{}
	// Self is the ID of the serving process. Connections from this process over unix sockets are refused. 0 refuses
	// none.
	Self int
}

// A Server serves the admin API at one address or none, which may change. Create it with [New], make it listen with
// [Server.Prepare], and end it with [Server.Close].
type Server struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	place   *admission.Server
	long    atomic.Bool // the last status was a long answer
	// inForce are the conditions that apply to all clients, even to clients that connected earlier.
	inForce atomic.Pointer[conditions]
	feed    *feed
	sinces  sinces
	guesses guesses

	document  func() *document
	drained   atomic.Bool                                 // a request has made the process drain
	profiling sync.Mutex                                  // held while a profile is taken
	sample    func(to io.Writer) (stop func(), err error) // sampleCPU, except in tests
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, log: cfg.Log, started: time.Now(), document: sync.OnceValue(makeDocument), sample: sampleCPU}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.long.Store(true) // until it is known
	s.inForce.Store(new(conditions))
	s.feed = newFeed(s.current)
	s.place = admission.NewServer("admin", maxConnections, s.log, &http.Server{
		Handler: s.local(http.HandlerFunc(s.respond)), ReadHeaderTimeout: headerTime,
		WriteTimeout: writeTime, // for responses of net/http itself
		ErrorLog:     log.New(&errorLog{s.log}, "", 0),
	}, s.take)
	return s
}

// A Move is a prepared change of a [Server]'s address. Call either Commit or Abort, once.
type Move struct {
	*admission.Move
	server *Server
	now    *conditions // for the new address
	// TakeOver asks the draining process that has the address to leave it, and listens there. Prepare sets it only
	// before this process has opened everything: if the opening fails, the draining process keeps the address.
	TakeOver func(ctx context.Context) error
}

// Prepare opens an address, and reads its files. If the server already listens there, only the mode of the path and the
// conditions may change, and a removed path is made again. A path that a dead process has left behind is taken over,
// and so is the address of a draining process. The error is one line.
func (s *Server) Prepare(ctx context.Context, a Access) (*Move, error) {
	if a.Bind == "" { // no token, certificate or group is valid
		return &Move{s.place.PrepareNone(), s, new(conditions), nil}, nil
	}
	addr, conditions, err := a.open(s.inForce.Load(), s.log)
	if err != nil {
		return nil, err
	}
	prepare := func(ctx context.Context, takeOver bool) (*admission.Move, error) {
		return s.place.Prepare(ctx, addr, func() (*listener.Listener, error) { return s.listen(ctx, addr, &a, takeOver) })
	}
	move, err := prepare(ctx, s.opened())
	if !errors.Is(err, errDrains) {
		return &Move{move, s, conditions, nil}, err
	}
	return &Move{s.place.PrepareNone(), s, conditions, func(ctx context.Context) error {
		move, err := prepare(ctx, true)
		if err == nil {
			move.Commit()
		}
		return err
	}}, nil
}

// Commit puts the change into force. Clients connected to the old address still get their response, if the new
// conditions allow it.
func (m *Move) Commit() {
	m.server.inForce.Store(m.now)
	m.Move.Commit()
}

// take serves a connection, unless this process itself has made it over a unix socket. In that case an endpoint leads
// here, and its clients would pass for the user of this process.
func (s *Server) take(conn net.Conn, release func()) {
	g := s.guest(conn)
	if s.cfg.Self > 0 && int(g.user.pid) == s.cfg.Self {
		s.log.Warn("the admin API refused a connection of this process itself: an endpoint has the admin address")
		conn.Close()
		release()
		return
	}
	with := s.inForce.Load().tls
	if g.unix {
		with = nil
	}
	s.place.Conns.Put(conn, with, g.mayHave(), g, release)
}

// Addr returns the server's address with the port that the kernel chose, or "" if the server does not listen.
func (s *Server) Addr() string { return s.place.Addr() }

// Gone reports whether the path of the server's socket was removed or replaced.
func (s *Server) Gone() bool { return s.place.Gone() }

// Leave stops listening for good, whatever is committed later, so that another process can listen. Connected clients
// still get their response. Streams of events end.
func (s *Server) Leave() {
	s.place.Leave()
	s.feed.end()
}

// Close ends the server. Responses in progress have until ctx ends. When Close returns, no goroutine and no connection
// of the server is left.
func (s *Server) Close(ctx context.Context) error {
	s.Leave()
	err := s.place.Close(ctx)
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
	starts, leaves := s.leaving()
	if leaves && st.State == Serving {
		st.DrainStarts = starts
	}
	st.AdminCertificates = CertificatesOf(s.inForce.Load().pair)
	now := time.Now()
	st.Problems = problems(st, now)
	if i := slices.IndexFunc(st.Problems, func(p Problem) bool { return p.Kind == "draining" }); i >= 0 && leaves {
		st.Problems[i].Since = starts
	}
	s.sinces.note(st.Problems, now)
}

// A drain may take long, and operators still need the status of the draining process. So the process keeps its address
// until a successor needs it. If the address is in use, the successor asks the process there for its status. If that
// process drains, the successor asks it to leave.

// ErrServing is wrapped by the error of a process that does not drain, and was asked to leave its address.
var ErrServing = errors.New("the process is not draining")

// handoverTime is how long a process may take to answer its successor.
const handoverTime = 2 * time.Second

// leave handles a successor's request.
func (s *Server) leave(_ context.Context, a *arguments) (any, error) {
	if s.cfg.Balancer.Status().State != Draining {
		return nil, fmt.Errorf("%w: a process leaves its address to a successor only while it drains", ErrServing)
	}
	s.log.Info("the admin socket was left to a successor", "by", a.by)
	s.Leave()
	return empty{}, nil
}

// errDrains means that a draining process has the address, and was not asked to leave it.
var errDrains = errors.New("a draining process has the address")

func (s *Server) listen(ctx context.Context, addr sockopt.Address, a *Access, takeOver bool) (*listener.Listener, error) {
	cfg := &listener.Config{Limit: s.place.Conns.Limit(), Own: true}
	l, err := listener.Listen(ctx, addr, cfg)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	switch asked := askToLeave(ctx, a, takeOver); {
	case errors.Is(asked, errDrains):
		return nil, asked
	case asked != nil:
		return nil, listener.ExplainTaken(addr, err)
	}
	return listener.Listen(ctx, addr, cfg)
}

// askToLeave asks the process at an address to leave, if it is a draining penstock and takeOver is set.
func askToLeave(ctx context.Context, a *Access, takeOver bool) error {
	ctx, cancel := context.WithTimeout(ctx, handoverTime)
	defer cancel()
	c, err := NewClientAs(a.Bind, a.credentials())
	if err != nil {
		return err
	}
	switch st, err := c.Status(ctx); {
	case err != nil:
		return err
	case st.State != Draining:
		return ErrServing
	case !takeOver:
		return errDrains
	}
	return c.do(ctx, "POST", "/v1/leave", nil, nil)
}
