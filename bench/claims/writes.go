package claims

import (
	"context"
	"net"
	"time"

	"github.com/penstock/penstock/vecio"
)

// The writes of measureWrites: pieces of so many bytes, and so many of them at a time if
// gathered; that is as many as 64 KiB hold.
const (
	pieceSize = 1300
	gathered  = 50
)

// The writes of measureReferences: pieces that a writer does not copy, and as many of them.
const (
	referredSize = 4096
	referred     = 16
)

// send writes pieces to a connection, and returns how many calls that took, and how many
// bytes were copied before these.
type send func(pieces [][]byte) (calls, copied int64, err error)

// measureWrites has one connection written to in pieces of 1,300 bytes, by a Write for
// each and gathered.
func measureWrites(ctx context.Context) (Result, error) {
	return measurePieces(ctx, gathered, pieceSize)
}

// measureReferences does the same in pieces of 4 KiB, which are not copied before they are
// written.
func measureReferences(ctx context.Context) (Result, error) {
	return measurePieces(ctx, referred, referredSize)
}

// measurePieces has one connection written to in batches of n pieces of a size.
func measurePieces(ctx context.Context, n, size int) (r Result, err error) {
	pieces := make([][]byte, n)
	for i := range pieces {
		pieces[i] = filled('p', size)
	}
	each, all := way{name: "a Write for each"}, way{name: "gathered"}
	for round := range connectionRounds {
		for i := range 2 {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			if (i+round)%2 == 0 {
				err = each.write(pieces, sendEach)
			} else {
				err = all.write(pieces, sendGathered)
			}
			if err != nil {
				return r, err
			}
		}
	}
	r.Figures = append(each.figures(), all.figures()...)
	r.Figures = append(r.Figures, Figure{Of: all.name, Name: "copied before the call", Unit: Percent, Value: 100 * float64(all.copied) / all.n})
	// The quotient of the throughputs the other way around is that of the times.
	r.Figures = append(r.Figures, spread("time for a byte, gathered / a Write for each", Ratio, each.bits.Over(all.bits)))
	return r, nil
}

// sendEach writes each piece by itself. A Write for which there is no room makes
// another call, which is not counted.
func sendEach(c *net.TCPConn) (send, error) {
	return func(pieces [][]byte) (calls, copied int64, err error) {
		for _, p := range pieces {
			if _, err := c.Write(p); err != nil {
				return calls, 0, err
			}
			calls++
		}
		return calls, 0, nil
	}, nil
}

// sendGathered writes all pieces together.
func sendGathered(c *net.TCPConn) (send, error) {
	w, err := vecio.New(c, nil)
	if err != nil {
		return nil, err
	}
	return func(pieces [][]byte) (calls, copied int64, err error) {
		before := w.Stats()
		for _, p := range pieces {
			if err := w.Append(p); err != nil {
				return 0, 0, err
			}
		}
		err = w.Flush()
		after := w.Stats()
		return after.Calls - before.Calls, after.CopiedBytes - before.CopiedBytes, err
	}, nil
}

// write writes batches of pieces for a trial to a connection of which the other end discards
// them.
func (w *way) write(pieces [][]byte, open func(*net.TCPConn) (send, error)) error {
	near, far, err := connection()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- discard(far) }()
	defer func() {
		near.Close()
		<-ended // the end of the stream, or an error that the sender has met, too
		far.Close()
	}()
	to, err := open(near)
	if err != nil {
		return err
	}
	batch := int64(size(pieces))
	return w.measure(func() (bytes, calls int64, err error) {
		for end := time.Now().Add(trial); time.Now().Before(end); {
			n, copied, err := to(pieces)
			if err != nil {
				return bytes, calls, err
			}
			bytes, calls = bytes+batch, calls+n
			w.copied += copied
		}
		return bytes, calls, nil
	})
}
