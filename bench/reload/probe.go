package reload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// probe connects until it is greeted with the letter, and returns when that was.
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
