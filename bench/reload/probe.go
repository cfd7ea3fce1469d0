package reload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// probe connects until it is greeted with a letter, and returns when that was.
func (s *Setup) probe(ctx context.Context, address string, letter byte) (at time.Time, err error) {
	var c net.Conn
	for {
		closed := s.Group.Do(func() { c, err = net.DialTimeout("tcp", address, patience) })
		if err = errors.Join(err, closed); err != nil {
			return at, fmt.Errorf("a connection was refused: %w", err)
		}
		b := make([]byte, 1)
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = io.ReadFull(c, b)
		at = time.Now()
		_ = c.Close()
		switch {
		case err != nil:
			return at, fmt.Errorf("a connection was not served: %w", err)
		case b[0] == letter:
			return at, nil
		case ctx.Err() != nil:
			return at, context.Cause(ctx)
		}
	}
}

// echoPause is between two echoes of a talker.
const echoPause = 200 * time.Microsecond

// talker is a connection that has one byte after the other echoed.
type talker struct {
	conn    net.Conn
	longest atomic.Int64 // nanoseconds, since it was asked last
	over    atomic.Bool
	work    sync.WaitGroup
	err     error // after work
}

// talk opens one.
func (s *Setup) talk(address string) (*talker, error) {
	t := new(talker)
	var err error
	closed := s.Group.Do(func() { t.conn, err = net.DialTimeout("tcp", address, patience) })
	if err = errors.Join(err, closed); err == nil {
		_, err = io.ReadFull(t.conn, make([]byte, 1))
	}
	if err != nil {
		return nil, err
	}
	t.work.Go(func() {
		for !t.over.Load() && t.err == nil {
			began := time.Now()
			_ = t.conn.SetDeadline(began.Add(patience))
			t.err = ask(t.conn)
			if took := int64(time.Since(began)); took > t.longest.Load() {
				t.longest.Store(took)
			}
			time.Sleep(echoPause)
		}
	})
	return t, nil
}

// last returns the longest echo since it was called before.
func (t *talker) last() time.Duration { return time.Duration(t.longest.Swap(0)) }

// end returns the error of it.
func (t *talker) end() error {
	t.over.Store(true)
	t.work.Wait()
	_ = t.conn.Close()
	return t.err
}
