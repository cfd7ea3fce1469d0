package tlsterm

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"
)

// An Error is why a handshake failed.
type Error struct {
	Kind FailureKind
	Peer string // "from 192.0.2.1:1234", "with 10.0.0.11:443"
	Err  error
}

// Error implements error, in one line.
func (e *Error) Error() string { return fmt.Sprintf("TLS handshake %s: %v", e.Peer, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// An attempt is a handshake and its bounds.
type attempt struct {
	raw     net.Conn
	conn    *tls.Conn
	peer    string // "from 192.0.2.1:1234", "with 10.0.0.11:443"
	timeout time.Duration
	turn    *handshakeSlot
	stats   *Stats
}

// newHandshakeSlot begins the time of a handshake.
func newHandshakeSlot(limit *Limit, timeout time.Duration) *handshakeSlot {
	return &handshakeSlot{limit: limit, end: time.Now().Add(timeout)}
}

// run does the handshake, and counts it.
func (a *attempt) run(ctx context.Context) error {
	began := a.turn.end.Add(-a.timeout)
	a.stats.Started.Add(1)
	a.stats.Active.Add(1)
	defer a.stats.Active.Add(-1)
	err := a.handshake(ctx)
	a.turn.done()
	if err != nil {
		kind := kindOf(err)
		a.stats.Failed[kind].Add(1)
		return &Error{Kind: kind, Peer: a.peer, Err: a.explain(kind, err)}
	}
	a.stats.Completed.Add(1)
	if a.conn.ConnectionState().DidResume {
		a.stats.Resumed.Add(1)
	}
	a.stats.Durations.add(time.Since(began))
	return nil
}

func (a *attempt) handshake(ctx context.Context) error {
	if err := a.raw.SetDeadline(a.turn.end); err != nil {
		return err
	}
	if err := a.conn.HandshakeContext(ctx); err != nil {
		return err
	}
	return a.raw.SetDeadline(time.Time{})
}

// explain makes words of an error that has none of its own.
func (a *attempt) explain(kind FailureKind, err error) error {
	if kind == Timeout {
		return fmt.Errorf("it was not done in time (%v): %w", a.timeout, os.ErrDeadlineExceeded)
	}
	return err
}
