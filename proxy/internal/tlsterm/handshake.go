package tlsterm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/sockopt"
)

// An Error is why a handshake failed.
type Error struct {
	Kind FailureKind
	Peer string // "from 192.0.2.1:1234", "with 10.0.0.11:443"
	Err  error
}

// Error implements error, in one line.
func (e *Error) Error() string { return fmt.Sprintf("%v %s: %v", record.ErrTLS, e.Peer, e.Err) }

// Unwrap returns [record.ErrTLS] and the cause.
func (e *Error) Unwrap() []error { return []error{record.ErrTLS, e.Err} }

// An attempt is a handshake and its bounds.
type attempt struct {
	raw   net.Conn
	conn  *tls.Conn
	heard *limitedConn // beneath conn
	peer  string       // "from 192.0.2.1:1234", "with 10.0.0.11:443"
	turn  *handshakeSlot
	stats *Stats
}

// newHandshakeSlot begins the time of a handshake.
func newHandshakeSlot(limit *Limit, timeout time.Duration) *handshakeSlot {
	return &handshakeSlot{limit: limit, timeout: timeout, end: time.Now().Add(timeout)}
}

// run does the handshake, and counts it.
func (a *attempt) run(ctx context.Context) error {
	atomic.AddInt64(&a.stats.counts.Active, 1)
	defer atomic.AddInt64(&a.stats.counts.Active, -1)
	err := a.handshake(ctx)
	a.turn.done()
	if err != nil {
		kind := kindOf(err)
		a.stats.Failed.Add(int(kind))
		return &Error{Kind: kind, Peer: a.peer, Err: a.explain(kind, err)}
	}
	atomic.AddInt64(&a.stats.counts.Completed, 1)
	if a.conn.ConnectionState().DidResume {
		atomic.AddInt64(&a.stats.counts.Resumed, 1)
	}
	return nil
}

func (a *attempt) handshake(ctx context.Context) error {
	if err := a.raw.SetDeadline(a.turn.end); err != nil {
		return err
	}
	if err := a.conn.HandshakeContext(ctx); err != nil {
		// OpenSSL rejects a certificate by an alert in the clear, which crypto/tls takes for a broken record of TLS 1.3.
		if a.turn.late {
			return errBusy // HandshakeContext returns the end of ctx instead, which may come at the same moment
		}
		if alert := a.heard.plainAlert(); alert != 0 && strings.HasSuffix(err.Error(), "bad record MAC") {
			return &net.OpError{Op: "remote error", Err: alert}
		}
		return err
	}
	return a.raw.SetDeadline(time.Time{})
}

// explain replaces the text of an error that says too little.
func (a *attempt) explain(kind FailureKind, err error) error {
	if kind == Timeout {
		return fmt.Errorf("not complete within %v: %w", a.turn.timeout, os.ErrDeadlineExceeded)
	}
	return err
}

// ErrSessions is the error of a TLS session for which there is no room.
var ErrSessions = errors.New("TLS session limit reached")

// A Limit bounds the cost of TLS for the process: the number of sessions, because they are copied and have buffers, and
// the number of handshakes in an expensive part. Handling received data is expensive; waiting for it is not. So a peer
// that sends nothing, or a byte at a time, or does not go on after an answer, keeps no other peer waiting. A Limit is
// safe for concurrent use; nil: nothing is bounded.
type Limit struct {
	most     int64
	sessions atomic.Int64
	turns    chan struct{} // one element for each handshake; nil: any number
}

// NewLimit returns a limit of concurrent sessions and handshakes; 0: any number.
func NewLimit(sessions, handshakes int) *Limit {
	l := &Limit{most: int64(sessions)}
	if handshakes > 0 {
		l.turns = make(chan struct{}, handshakes)
	}
	return l
}

// Enter takes a place for a session, and Leave gives the place back. Enter does not wait.
func (l *Limit) Enter() error {
	if l == nil {
		return nil
	}
	if n := l.sessions.Add(1); l.most > 0 && n > l.most {
		l.sessions.Add(-1)
		return ErrSessions
	}
	return nil
}

// Leave gives a place back.
func (l *Limit) Leave() {
	if l != nil {
		l.sessions.Add(-1)
	}
}

// Sessions returns how many places are taken.
func (l *Limit) Sessions() int {
	if l == nil {
		return 0
	}
	return int(l.sessions.Load())
}

// Max returns how many places there are; 0: any number.
func (l *Limit) Max() int {
	if l == nil {
		return 0
	}
	return int(l.most)
}

// A handshakeSlot is the place under a Limit that a handshake takes for its expensive parts.
type handshakeSlot struct {
	limit    *Limit
	timeout  time.Duration
	end      time.Time
	extended bool // end is the second one
	held     bool
	late     bool // there was no room until end
}

// extend gives the handshake on c its whole time once more.
func (t *handshakeSlot) extend(c net.Conn) {
	t.extended, t.end = true, time.Now().Add(t.timeout)
	_ = c.SetDeadline(t.end)
}

// take waits until there is room, or the peer of c has gone. c is not read meanwhile.
func (t *handshakeSlot) take(ctx context.Context, c net.Conn) error {
	if t.held || t.limit == nil || t.limit.turns == nil {
		return nil
	}
	select {
	case t.limit.turns <- struct{}{}:
		t.held = true
		return nil
	default:
	}
	timer := time.NewTimer(time.Until(t.end))
	defer timer.Stop()
	ctx, stop := sockopt.Watch(ctx, c, t.end)
	defer stop()
	select {
	case t.limit.turns <- struct{}{}:
		t.held = true
		return nil
	case <-ctx.Done():
		if context.Cause(ctx) == sockopt.ErrGone {
			return sockopt.ErrGone
		}
		t.late = ctx.Err() == context.DeadlineExceeded
		return ctx.Err()
	case <-timer.C:
		t.late = true
		return errBusy
	}
}

// done gives the slot back, if it was taken.
func (t *handshakeSlot) done() {
	if t.held {
		<-t.limit.turns
		t.held = false
	}
}

// A limitedConn is a connection in a handshake: while it waits for the peer it has no slot, and gets one when data has
// come. A peer that begins many handshakes and goes on with none, at whatever point, takes no slots from others.
//
// It stays beneath crypto/tls after the handshake, and notes the end of the connection.
type limitedConn struct {
	net.Conn
	ctx   context.Context
	turn  *handshakeSlot // nil when the handshake is over
	left  int            // bytes that the handshake may still read
	after int            // the same after the first Write
	ended bool           // a Read has met the end of file; belongs to the reader
	last  [7]byte        // last bytes that the handshake has read
}

// plainAlert returns the alert in the clear with which a peer's bytes ended, or 0 if they ended otherwise.
func (c *limitedConn) plainAlert() tls.AlertError {
	if header := [5]byte{21, 3, 3, 0, 2}; [5]byte(c.last[:5]) != header {
		return 0
	}
	return tls.AlertError(c.last[6])
}

// The most bytes that a handshake may read. crypto/tls keeps a message until it is whole, and only then checks it: at most
// a quarter of a MiB of certificates.
const (
	maxHello        = 128 << 10 // including the headers of its records
	maxAfterHello   = 32 << 10  // from a client, behind its ClientHello
	maxFromEndpoint = 64 << 10
)

func (c *limitedConn) Write(p []byte) (int, error) {
	if c.turn != nil {
		c.left = min(c.left, c.after)
	}
	n, err := c.Conn.Write(p)
	if c.mayBeLate(err) {
		m := 0
		if m, err = c.Conn.Write(p[n:]); err == nil {
			c.turn.extend(c.Conn)
		}
		n += m
	}
	return n, err
}

func (c *limitedConn) Read(p []byte) (int, error) {
	if c.turn == nil {
		return c.read(p)
	}
	if c.left == 0 {
		return 0, fmt.Errorf("longer than %d KiB, not counting the ClientHello", c.after>>10)
	}
	c.turn.done()
	p = p[:min(len(p), c.left)]
	n, err := c.read(p)
	if c.mayBeLate(err) {
		if n, err = c.read(p); n > 0 {
			c.turn.extend(c.Conn)
		}
	}
	c.left -= n
	if n > 0 {
		copy(c.last[:], c.last[min(n, len(c.last)):])
		copy(c.last[max(len(c.last)-n, 0):], p[max(n-len(c.last), 0):n])
		if late := c.turn.take(c.ctx, c.Conn); late != nil {
			return 0, late
		}
	}
	return n, err
}

// mayBeLate reports whether a call that has failed is to be made once more, for which there is a moment: the handshake's time is
// over, but this process may have stood still, as by SIGSTOP, while the peer was in time. If the call succeeds now, the handshake
// has its time again, but only once.
func (c *limitedConn) mayBeLate(err error) bool {
	if c.turn == nil || c.turn.extended || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	return c.SetDeadline(time.Now().Add(100*time.Millisecond)) == nil
}

func (c *limitedConn) read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.ended = c.ended || err == io.EOF
	return n, err
}

func (c *limitedConn) over() { c.ctx, c.turn = nil, nil }

// NetConn returns the connection beneath, through which a TLS connection can be reset.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }

// errBusy is the error of a handshake that got no slot in time. That says nothing about the peer.
var errBusy = fmt.Errorf("too many TLS handshakes at once: %w", syscall.EBUSY)

// Handshakes returns how many handshakes are in an expensive part.
func (l *Limit) Handshakes() int {
	if l == nil {
		return 0
	}
	return len(l.turns)
}
