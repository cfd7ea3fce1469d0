package terminate

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/socket"
)

// ErrSessions is the error of a TLS session for which there is no room.
var ErrSessions = errors.New("there are as many TLS sessions as there may be")

// A Limit bounds what TLS costs the process: how many sessions there are at once,
// which are copied and have goroutines, and how many of them are in a part of a
// handshake that costs something. That is what is done with what the peer has sent, and
// not the waiting for it: so none that says nothing, or says it a byte at a time, or does
// not go on after it was answered, keeps others waiting. It is safe for concurrent use;
// nil: nothing is bounded.
type Limit struct {
	most     int64
	sessions atomic.Int64
	turns    chan struct{} // one element for each handshake; nil: any number
}

// NewLimit returns a limit of so many sessions, and so many handshakes; 0: any number.
func NewLimit(sessions, handshakes int) *Limit {
	l := &Limit{most: int64(sessions)}
	if handshakes > 0 {
		l.turns = make(chan struct{}, handshakes)
	}
	return l
}

// Enter takes the place of a session, which Leave gives back. It does not wait.
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

// Sessions is how many places are taken.
func (l *Limit) Sessions() int {
	if l == nil {
		return 0
	}
	return int(l.sessions.Load())
}

// Most is how many places there are; 0: any number.
func (l *Limit) Most() int {
	if l == nil {
		return 0
	}
	return int(l.most)
}

// A turn is a handshake's, which it takes when it comes to what costs something.
type turn struct {
	limit *Limit
	end   time.Time
	held  bool
}

// take waits until there is room, or the peer of a connection, from which nobody reads
// meanwhile, has gone.
func (t *turn) take(ctx context.Context, c net.Conn) error {
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
	ctx, stop := socket.Watch(ctx, c, t.end)
	defer stop()
	select {
	case t.limit.turns <- struct{}{}:
		t.held = true
		return nil
	case <-ctx.Done():
		if context.Cause(ctx) == socket.ErrGone {
			return socket.ErrGone
		}
		return ctx.Err()
	case <-timer.C:
		return errBusy
	}
}

// done gives it back, if it was taken.
func (t *turn) done() {
	if t.held {
		<-t.limit.turns
		t.held = false
	}
}

// A turning is a connection in a handshake: as long as it waits for the peer it has no
// turn, and gets one when something has come. Who begins many handshakes and goes on with
// none, at whatever point, takes no turns from others.
//
// It is beneath crypto/tls also after that, and notes the end of the connection.
type turning struct {
	net.Conn
	ctx   context.Context
	turn  *turn // nil when the handshake is over
	ended bool  // a Read has met the end of file; belongs to whoever reads
}

func (c *turning) Read(p []byte) (int, error) {
	if c.turn == nil {
		return c.read(p)
	}
	c.turn.done()
	n, err := c.read(p)
	if n > 0 {
		if late := c.turn.take(c.ctx, c.Conn); late != nil {
			return 0, late
		}
	}
	return n, err
}

func (c *turning) read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.ended = c.ended || err == io.EOF
	return n, err
}

// over ends the handshake.
func (c *turning) over() { c.ctx, c.turn = nil, nil }

// NetConn returns the connection itself: who resets one of TLS asks for it.
func (c *turning) NetConn() net.Conn { return c.Conn }

// errBusy is the error of a handshake whose turn did not come.
var errBusy = errors.Join(errors.New("too many handshakes at once"), os.ErrDeadlineExceeded)

// Handshakes is how many are in the part that costs something.
func (l *Limit) Handshakes() int {
	if l == nil {
		return 0
	}
	return len(l.turns)
}
