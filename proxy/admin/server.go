package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/socket"
)

// maxConnections is how many connections are served at once: whoever may connect must not
// take the descriptors of those whom the process is there for.
const maxConnections = 32

// The times that requests may take.
const (
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	answerTime = 2 * time.Minute // of a reload
	idleTime   = 30 * time.Second
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
	s := &Server{cfg: cfg, log: cfg.Log, started: time.Now(), conns: newFunnel(), limit: listener.NewLimit(maxConnections)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.http = http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      answerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	s.serving.Go(func() { _ = s.http.Serve(s.conns) }) // http.ErrServerClosed
	return s
}

// A Move is a change of where a [Server] listens that is prepared: Commit or Abort it,
// once.
type Move struct {
	server *Server
	next   *place // nil: nowhere
	same   bool   // nothing changes
}

// Prepare gets hold of an address, as [ParseAddress] takes it, or of none for "". At that
// where it listens already nothing happens, and nothing is opened. A path that a process
// has left behind is taken over. The error is one line.
func (s *Server) Prepare(ctx context.Context, bind string) (*Move, error) {
	if bind == "" {
		return &Move{server: s}, nil
	}
	addr, err := ParseAddress(bind)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	same := s.at != nil && s.at.addr == addr
	s.mu.Unlock()
	if same {
		return &Move{server: s, same: true}, nil
	}
	l, err := listener.Listen(ctx, addr, &listener.Config{Limit: s.limit})
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
	if m.same {
		return
	}
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
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

// serve accepts at a place until it is stopped.
func (s *Server) serve(p *place) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	s.log.Info("admin listens", "bind", p.listen.Addr())
	s.serving.Go(func() {
		if err := p.listen.Serve(ctx, s.conns.put); err != nil {
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
	st.Generation = s.cfg.Reloader.Generations().Current
}

// A funnel is a listener that accepts what it is given.
type funnel struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newFunnel() *funnel { return &funnel{conns: make(chan net.Conn), closed: make(chan struct{})} }

// put has a connection accepted; release is called when it has ended.
func (f *funnel) put(conn net.Conn, release func()) {
	c := &released{Conn: conn, release: sync.OnceFunc(release)}
	select {
	case f.conns <- c:
	case <-f.closed:
		c.Close()
	}
}

// Accept returns the next connection that was put.
func (f *funnel) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close has nothing accepted any more.
func (f *funnel) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// Addr is there for [net.Listener].
func (f *funnel) Addr() net.Addr { return &net.UnixAddr{Name: "admin", Net: "unix"} }

// released is a connection that tells of its end.
type released struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (c *released) Close() error {
	defer c.release()
	return c.Conn.Close()
}
