package claims

import (
	"context"
	"net"
	"time"

	"github.com/penstock/penstock/vecio"
)

// What measureWrites writes: pieces of so many bytes, and so many of them at a time to
// those who gather; that is as many as 64 KiB hold.
const (
	pieceSize = 1300
	gathered  = 50
)

// send writes pieces to a connection, and returns how many calls that took.
type send func(pieces [][]byte) (calls int64, err error)

// measureWrites has one connection written to in pieces of 1,300 bytes, by a Write for
// each and gathered.
func measureWrites(ctx context.Context) (r Result, err error) {
	each, all := way{name: "a Write for each"}, way{name: "gathered"}
	for round := range connectionRounds {
		for i := range 2 {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			if (i+round)%2 == 0 {
				err = each.write(sendEach)
			} else {
				err = all.write(sendGathered)
			}
			if err != nil {
				return r, err
			}
		}
	}
	r.Figures = append(each.figures(), all.figures()...)
	// The quotient of the throughputs the other way around is that of the times.
	r.Figures = append(r.Figures, spread("time for a byte, gathered / a Write for each", Ratio, each.bits.Over(all.bits)))
	return r, nil
}

// sendEach writes each piece by itself. A Write for which there is no room makes
// another call, which is not counted.
func sendEach(c *net.TCPConn) (send, error) {
	return func(pieces [][]byte) (calls int64, err error) {
		for _, p := range pieces {
			if _, err := c.Write(p); err != nil {
				return calls, err
			}
			calls++
		}
		return calls, nil
	}, nil
}

// sendGathered writes all pieces together.
func sendGathered(c *net.TCPConn) (send, error) {
	w, err := vecio.New(c, nil)
	if err != nil {
		return nil, err
	}
	return func(pieces [][]byte) (calls int64, err error) {
		before := w.Stats().Calls
		for _, p := range pieces {
			if err := w.Append(p); err != nil {
				return 0, err
			}
		}
		err = w.Flush()
		return w.Stats().Calls - before, err
	}, nil
}

// write writes for a trial to a connection whose other end throws away what comes.
func (w *way) write(open func(*net.TCPConn) (send, error)) error {
	near, far, err := connection()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- discard(far) }()
	defer func() {
		near.Close()
		<-ended // which is the end of the stream, or what the sender has met, too
		far.Close()
	}()
	to, err := open(near)
	if err != nil {
		return err
	}
	pieces := make([][]byte, gathered)
	for i := range pieces {
		pieces[i] = filled('p', pieceSize)
	}
	return w.measure(func() (bytes, calls int64, err error) {
		for end := time.Now().Add(trial); time.Now().Before(end); {
			n, err := to(pieces)
			if err != nil {
				return bytes, calls, err
			}
			bytes, calls = bytes+gathered*pieceSize, calls+n
		}
		return bytes, calls, nil
	})
}
