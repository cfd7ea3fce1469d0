package admin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/socket"
)

// maxConnections is how many connections there are at once: whoever may connect must not
// take the descriptors of those whom the process is there for. The last place is for who
// comes next: when it is taken, the connection is closed whose client is waited for since
// longest, with its request or with its reading of the answer.
const maxConnections = 32

// What a client may take at the most, also while there is room for others.
const (
	headerTime = 5 * time.Second  // for sending its request
	writeTime  = 10 * time.Second // for reading the whole answer
)

// Config sets up a [Server].
type Config struct {
	Balancer Balancer
	Reloader Reloader
	// Stop has the process drain and end, as SIGTERM does. It returns at once.
	Stop func()
	// Version is that of the program.
	Version string
	// Log gets what an operator should know; nil means nothing.
	Log *slog.Logger
	// Self is the process whose connections over unix sockets are refused, the one that serves; 0:
	// nobody's are.
	Self int
}

// A Server answers requests. It listens at one address at most, which may change. Make it
// with [New], have it listen with [Server.Prepare], and end it with [Server.Close].
type Server struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	http    http.Server
	conns   *funnel
	limit   *listener.Limit
	serving sync.WaitGroup

	mu   sync.Mutex
	at   *place // where it listens; nil: nowhere
	left bool   // for good
}

// A place is an address at which a server listens.
type place struct {
	addr   socket.Address
	listen *listener.Listener // owned by its Serve once that has begun
	stop   context.CancelFunc // of that
}

// New returns a server that listens nowhere yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, log: cfg.Log, started: time.Now(), conns: newFunnel(maxConnections), limit: listener.NewLimit(maxConnections)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.http = http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTime,
		WriteTimeout:      writeTime, // of what net/http answers by itself
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withGuest,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	// One request for each connection: who asks again takes its turn with the others.
	s.http.SetKeepAlivesEnabled(false)
	s.serving.Go(func() { _ = s.http.Serve(s.conns) }) // http.ErrServerClosed
	return s
}

// A Move is a change of where a [Server] listens that is prepared: Commit or Abort it,
// once.
type Move struct {
	server *Server
	next   *place      // nil: nowhere
	same   bool        // as before, but for the mode
	mode   fs.FileMode // of a path that stays
}

// Prepare gets hold of an address, as [ParseAddress] takes it, or of none for "". At that
// where it listens already nothing is opened, and the mode of its path is all that may
// change. A path that a process has left behind is taken over, and so is the address of one
// that drains. The error is one line.
func (s *Server) Prepare(ctx context.Context, bind string) (*Move, error) {
	if bind == "" {
		return &Move{server: s}, nil
	}
	addr, err := ParseAddress(bind)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	same := s.at != nil && s.at.addr.Network == addr.Network && s.at.addr.Name == addr.Name
	s.mu.Unlock()
	if same {
		return &Move{server: s, same: true, mode: addr.Mode}, nil
	}
	l, err := s.listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &Move{server: s, next: &place{addr: addr, listen: l}}, nil
}

// Abort leaves everything as it is.
func (m *Move) Abort() error {
	if m.next == nil {
		return nil
	}
	return m.next.listen.Close()
}

// Commit has the server listen at the new address, and at the old one no more: who is
// connected there is still answered.
func (m *Move) Commit() {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.same {
		s.setMode(m.mode)
		return
	}
	if m.next != nil && s.left {
		_ = m.Abort() // nobody was told of it
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

// setMode changes the mode of the path where it listens. The caller holds s.mu.
func (s *Server) setMode(mode fs.FileMode) {
	if s.at == nil { // it has left
		return
	}
	if err := s.at.listen.SetMode(mode); err != nil {
		s.log.Warn("the mode of the admin socket is not changed", "bind", s.at.listen.Addr(), "error", err)
	}
}

// take has a connection served, unless this process itself has made it over a unix socket: an
// endpoint leads here then, and whoever is its client would be taken for this process's user.
func (s *Server) take(conn net.Conn, release func()) {
	if s.cfg.Self > 0 && int(userOf(conn).pid) == s.cfg.Self {
		s.log.Warn("admin refuses a connection of this process itself: an endpoint leads to it")
		conn.Close()
		release()
		return
	}
	s.conns.put(conn, release)
}

// serve accepts at a place until it is stopped.
func (s *Server) serve(p *place) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	s.log.Info("admin listens", "bind", p.listen.Addr())
	s.serving.Go(func() {
		if err := p.listen.Serve(ctx, s.take); err != nil {
			s.log.Warn("closing the admin socket failed", "bind", p.listen.Addr(), "error", err)
		}
	})
}

// Addr returns where it listens, with the port that the kernel chose; "" for nowhere.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		return ""
	}
	return s.at.listen.Addr()
}

// Leave has it listen nowhere any more, whatever is committed later, so that another
// process can; those who are connected are still answered.
func (s *Server) Leave() {
	(&Move{server: s}).Commit()
	s.mu.Lock()
	s.left = true
	s.mu.Unlock()
}

// Close ends the server: what is being answered has until ctx ends. It returns when
// nothing is left of it.
func (s *Server) Close(ctx context.Context) error {
	s.Leave()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.serving.Wait()
	return err
}

// fill fills in what a balancer does not know of itself.
func (s *Server) fill(st *Status) {
	st.PID, st.Version, st.Started = os.Getpid(), s.cfg.Version, s.started
	of := s.cfg.Reloader.Generations()
	st.Generation, st.Pending = of.Current, of.Pending
	st.Problems = problems(st, time.Now())
}
