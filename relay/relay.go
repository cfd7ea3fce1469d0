package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/closed"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/pool"
)

// A Relay joins connections. It holds the common resources of its sessions, and is safe for concurrent use.
// Make it with [New]: a zero Relay moves nothing, and its errors wrap os.ErrInvalid.
type Relay struct {
	cfg       Config
	limits    Limits     // of sessions without limits of their own
	pipes     *pipe.Pool // nil where the system has no splice
	ownsPipes bool
	buffers   []bufferPool // in ascending order of size
	clock     clock
	linger    time.Duration // lingerMost, except in tests
	guard     guard
	ledger    ledger
	jobs      sync.Pool // *copyJob: only memory, nothing to close
	running   running
	released  sync.Once
}

// New returns a Relay; a nil cfg means the defaults. Its error wraps [ErrConfig] for an invalid field, or the
// reason why no pipe pool could be made. A system without splice is no error: the Relay copies, and counts
// [FallbackUnsupported].
func New(cfg *Config) (*Relay, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	r := &Relay{cfg: cfg.withDefaults(), clock: systemClock{}, linger: lingerMost, guard: guard{clock: systemClock{}}}
	if err := r.cfg.check(); err != nil {
		return nil, fmt.Errorf("penstock: relay: %w", err)
	}
	r.limits = r.cfg.limits()
	r.ledger.goroutines.shared = true
	r.guard.tick = r.cfg.TailDelay / 2
	if err := r.openBuffers(); err != nil {
		return nil, err
	}
	if err := r.openPipes(); err != nil {
		return nil, errors.Join(fmt.Errorf("penstock: relay: pipes: %w", err), r.closeBuffers())
	}
	return r, nil
}

func (r *Relay) openPipes() error {
	if r.cfg.Pipes != nil {
		r.pipes = r.cfg.Pipes
		return nil
	}
	if r.cfg.Engine == EngineCopy {
		return nil
	}
	pipes, err := pipe.NewPool(nil)
	switch {
	case errors.Is(err, pipe.ErrNotSupported):
		return nil
	case err != nil:
		return err
	}
	r.pipes, r.ownsPipes = pipes, true
	return nil
}

// Close cuts the running sessions on goroutines ([ErrClosed], [ReasonCanceled]), and releases the Relay's
// resources: idle buffers, and idle pipes unless [Config.Pipes] was given. It does not wait. A second Close
// does nothing. Further sessions are refused. Sessions of a [Driver], and copies, keep pipes and buffers until they
// end. A copy that begins later still works, but splices only with [Config.Pipes]; see [FallbackClosed].
func (r *Relay) Close() error {
	for _, s := range r.running.close() {
		s.Cut(errEnded)
	}
	return r.release()
}

// Shutdown refuses further sessions with [ErrClosed], waits until the running sessions on goroutines have ended
// and their Hooks.Ended has returned, and closes the Relay. Run and Join may return slightly later. If ctx ends
// earlier, Shutdown returns the cause, and the sessions go on: [Relay.Close] ends them. Shutdown does not wait for
// copies, or for the sessions of a [Driver].
func (r *Relay) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	r.running.close()
	if over := r.running.none(); over != nil {
		select {
		case <-over:
		case <-ctx.Done():
			if left := len(r.running.close()); left > 0 { // the last one may have ended just now
				return fmt.Errorf("penstock: relay: shutdown: sessions still run (%d); Close ends them: %w", left, context.Cause(ctx))
			}
		}
	}
	return r.release()
}

// release releases the resources, once.
func (r *Relay) release() (err error) {
	r.released.Do(func() {
		err = r.closeBuffers()
		if r.ownsPipes {
			err = errors.Join(err, r.pipes.Close())
		}
	})
	return err
}

// Stats is the resources and the counters of a Relay.
type Stats struct {
	Pipes   pipe.Stats
	Buffers pool.Stats
	Drivers DriverStats // the sum of all drivers and of the goroutines
}

// Stats returns the statistics of the pools of pipes and buffers, and of the drivers. It may be called at any
// time.
func (r *Relay) Stats() Stats {
	s := Stats{Buffers: r.bufferStats(), Drivers: r.ledger.stats()}
	if r.pipes != nil {
		s.Pipes = r.pipes.Stats()
	}
	return s
}

// Engine returns the engine of the Relay's [Config].
func (r *Relay) Engine() Engine { return r.cfg.Engine }

// Join joins a and b until both directions have ended, and has closed both when it returns. It is NewSession(a,
// b).Run(ctx), see [Session.Run]; the function [Join] says what it returns.
func (r *Relay) Join(ctx context.Context, a, b net.Conn) (Result, error) {
	return r.NewSession(a, b).Run(ctx)
}

var defaultRelay = sync.OnceValues(func() (*Relay, error) { return New(nil) })

// Default returns the relay of [Join], [Copy], [CopyContext], [CopyN] and [Wrap], or the error of [New]. It has
// the defaults of [Config], is made at the first call and serves the whole process, so its Stats count the
// whole process. It must not be closed. Default is safe for concurrent use. The first pool of a process costs some 10 ms, in
// which the kernel registers the process: call Default at the start if the first session must not wait.
func Default() (*Relay, error) { return defaultRelay() }

// Join joins a and b until both directions have ended, and has closed both when it returns, also after an error.
// An end of file is passed on as a half-close, and a reset as a reset. The end of ctx resets both sides. There are
// no timeouts: make a relay with [New] for them. Join is [Relay.Join] of the default relay.
//
// The result has the reason of the end ([Reason]), the side that caused it, if one did ([Result.Culprit]), and the
// bytes of each direction ([Flow]). The error is nil if both sides have ended by end of file. Otherwise it wraps
// the cause: context.Cause(ctx), or a *net.OpError for a read or write that failed.
func Join(ctx context.Context, a, b net.Conn) (Result, error) {
	r, err := Default()
	if err != nil {
		return Result{Reason: ReasonError}, err
	}
	return r.Join(ctx, a, b)
}

// Copy is [Relay.Copy] of the default relay: [io.Copy] that splices.
func Copy(dst io.Writer, src io.Reader) (int64, error) {
	r, err := Default()
	if err != nil {
		return 0, err
	}
	return r.Copy(dst, src)
}

// CopyContext is [Relay.CopyContext] of the default relay: [Copy] until ctx ends.
func CopyContext(ctx context.Context, dst io.Writer, src io.Reader) (int64, error) {
	r, err := Default()
	if err != nil {
		return 0, err
	}
	return r.CopyContext(ctx, dst, src)
}

// CopyN is [Relay.CopyN] of the default relay: [io.CopyN] that splices.
func CopyN(dst io.Writer, src io.Reader, n int64) (int64, error) {
	r, err := Default()
	if err != nil {
		return 0, err
	}
	return r.CopyN(dst, src, n)
}

// Wrap returns conn with a WriteTo and a ReadFrom that are [Copy], so that code that calls [io.Copy] or
// io.CopyN uses the default relay unchanged. All other methods are conn's. The result owns conn. It is an
// [Unwrapper].
//
// The result has the methods of a [*net.TCPConn] that programs look for by an assertion: CloseRead, CloseWrite,
// SetLinger, SetNoDelay, SetKeepAlive, SetKeepAlivePeriod, SetKeepAliveConfig, SetReadBuffer, SetWriteBuffer,
// SyscallConn, and NetConn, which returns conn. They return errors.ErrUnsupported if conn lacks them. File and
// MultipathTCP are not among them: call them on NetConn().
//
// Only the default [Relay] has a Wrap, because most fields of a Config (timeouts, hooks) are for sessions, and
// copies ignore them. Code that wants another Engine or other Pipes calls [Relay.Copy]; code that wants
// timeouts joins the connections by [Relay.Join], or sets deadlines.
func Wrap(conn net.Conn) net.Conn {
	if isNil(conn) {
		return nil
	}
	return &wrapped{whole{beneath{conn}}}
}

type wrapped struct{ whole }

// WriteTo implements [io.WriterTo].
func (c *wrapped) WriteTo(dst io.Writer) (int64, error) { return Copy(dst, c.Conn) }

// ReadFrom implements [io.ReaderFrom].
func (c *wrapped) ReadFrom(src io.Reader) (int64, error) { return Copy(c.Conn, withWriteTo(src)) }

// RelayReader implements [Unwrapper].
func (c *wrapped) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return c.Conn, nil, nil
}

// ErrClosed is the error of sessions that are refused after Close or Shutdown of their [Relay]. The error of sessions
// that Close has ended wraps it. It matches os.ErrClosed.
var ErrClosed error = closed.Error("penstock: relay: refused after Close or Shutdown")

// errEnded is the error of sessions that Close has ended.
var errEnded error = endedByClose{}

type endedByClose struct{}

func (endedByClose) Error() string { return "penstock: relay: ended by Relay.Close" }

func (endedByClose) Unwrap() error { return ErrClosed }

// running holds the running sessions on goroutines.
type running struct {
	mu     sync.Mutex
	all    map[*Session]struct{}
	closed bool
	over   chan struct{} // closed when no session runs; nil: nobody waits for that
}

// add adds a session that begins, and reports whether it may.
func (r *running) add(s *Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	if r.all == nil {
		r.all = make(map[*Session]struct{})
	}
	r.all[s] = struct{}{}
	return true
}

func (r *running) remove(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s)
	if len(r.all) == 0 && r.over != nil {
		close(r.over)
		r.over = nil
	}
}

// close makes add refuse from now on, and returns the running sessions.
func (r *running) close() (all []*Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for s := range r.all {
		all = append(all, s)
	}
	return all
}

// none returns a channel that is closed when no session runs any more, or nil if none runs now. It is called
// after close.
func (r *running) none() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over == nil && len(r.all) > 0 {
		r.over = make(chan struct{})
	}
	return r.over
}

// Hooks are functions that a [Relay] calls at events of its sessions on goroutines, from Join and
// [Relay.NewSession]. Any of them may be nil, and costs nothing then. They are called on the session's goroutines;
// several sessions may call them at once. They must not wait, or call [Relay.Shutdown], which waits for them. A
// session that is refused calls none. (A [Driven] needs none: its owner starts it, and is notified of its end, and
// [DriverStats] counts its changes of engine. A copy has no hooks.)
type Hooks struct {
	// Started is called before the first byte is moved.
	Started func(s *Session)
	// EngineChanged is called when the direction that reads from source changes its engine to EngineSplice or
	// EngineCopy. The reason is the size of its reads, or a fallback, which [Session.Result] counts.
	EngineChanged func(s *Session, source Side, now Engine)
	// Ended is called with the results of Run, when both connections are closed.
	Ended func(s *Session, res Result, err error)
}

// Conns returns the connections that the session joins. The session owns them: a caller may only read their
// addresses, and what its own wrappers add.
func (s *Session) Conns() (a, b net.Conn) { return s.a.conn, s.b.conn }

// switchTo changes the mode of the next reads.
func (d *direction) switchTo(m mode) {
	if d.mode == m {
		return
	}
	d.mode = m
	if changed := d.env().engineChanged; changed != nil {
		changed(d)
	}
}

// engineChanged calls the hook EngineChanged.
func (s *Session) engineChanged(d *direction) {
	source, now := SideA, EngineCopy
	if d == &s.ba {
		source = SideB
	}
	if d.mode == splicing {
		now = EngineSplice
	}
	s.r.cfg.Hooks.EngineChanged(s, source, now)
}
