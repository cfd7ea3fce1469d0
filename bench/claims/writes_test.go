package claims

import (
	"bufio"
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
	ways := []struct {
		way
		open func(*net.TCPConn) (send, error)
	}{
		{way{name: "a Write for each"}, sendEach},
		{way{name: "bufio, 64 KiB"}, sendBuffered},
		{way{name: "net.Buffers"}, sendBuffers},
		{way{name: "gathered"}, sendGathered},
	}
	for round := range connectionRounds {
		for i := range ways {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			w := &ways[(i+round)%len(ways)]
			if err := w.write(pieces, w.open); err != nil {
				return r, err
			}
		}
	}
	each, all := &ways[0], &ways[len(ways)-1]
	for i := range ways {
		r = append(r, ways[i].figures()...)
	}
	r = append(r, Figure{Of: all.name, Name: "copied before the call", Unit: Percent, Value: 100 * float64(all.copied) / all.n})
	// The quotient of the throughputs the other way around is that of the times.
	for _, w := range ways[1:] {
		r = append(r, spread("time for a byte, "+w.name+" / "+each.name, Ratio, each.bits.Over(w.bits)))
	}
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

// sendBuffered writes all pieces by a bufio.Writer, and flushes it.
func sendBuffered(c *net.TCPConn) (send, error) {
	calls := new(int64)
	w := bufio.NewWriterSize(writerFunc(func(b []byte) (int, error) { *calls++; return c.Write(b) }), 64<<10)
	return func(pieces [][]byte) (int64, int64, error) {
		before := *calls
		for _, p := range pieces {
			if _, err := w.Write(p); err != nil {
				return 0, 0, err
			}
		}
		err := w.Flush()
		return *calls - before, int64(size(pieces)), err
	}, nil
}

// A writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// sendBuffers writes all pieces by net.Buffers, whose array is used again. A call for which there is no room is followed by another,
// which is not counted.
func sendBuffers(c *net.TCPConn) (send, error) {
	var array [][]byte
	return func(pieces [][]byte) (calls, copied int64, err error) {
		array = append(array[:0], pieces...)
		rest := net.Buffers(array)
		_, err = rest.WriteTo(c)
		return 1, 0, err
	}, nil
}

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

// write writes batches of pieces for a trial to a connection whose other end discards
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
