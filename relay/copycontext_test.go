package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

var errEnough = errors.New("enough")

// TestCopyContextEnds: the end of the context ends a copy of each kind, one that flows and one whose destination
// takes nothing any more, with the cause, and the bytes that have arrived are counted.
func TestCopyContextEnds(t *testing.T) {
	t.Parallel()

	for _, blocked := range []bool{false, true} {
		eachCopy(t, func(t *testing.T, r *relay.Relay, src io.Reader) {
			near, far := sockets.TCPPair(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			arrived := make(chan int64)
			go func() {
				n, _ := io.CopyN(io.Discard, far, 1<<20)
				if blocked {
					time.AfterFunc(20*time.Millisecond, func() { cancel(errEnough) })
				} else {
					cancel(errEnough)
				}
				<-ctx.Done()
				rest, _ := io.Copy(io.Discard, far)
				arrived <- n + rest
			}()
			n, err := r.CopyContext(ctx, near, src)
			if err != errEnough {
				t.Errorf("the error is %v", err)
			}
			near.Close()
			if got := <-arrived; n != got {
				t.Errorf("%d bytes were copied, %d have arrived", n, got)
			}
		})
	}
}

// TestCopyContextOfTheSilent: a copy ends that waits for a source which sends nothing.
func TestCopyContextOfTheSilent(t *testing.T) {
	t.Parallel()

	for name, n := range map[string]network{"tcp": tcp, "unix": unixStream, "wrapped": wrappedTCP} {
		t.Run(name, func(t *testing.T) {
			_, src := n(t)
			near, _ := sockets.TCPPair(t)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if n, err := relay.CopyContext(ctx, near, src); n != 0 || err != context.DeadlineExceeded {
				t.Errorf("%d bytes, %v", n, err)
			}
			if n, err := relay.CopyContext(ctx, near, src); n != 0 || err != context.DeadlineExceeded {
				t.Errorf("after the end: %d bytes, %v", n, err)
			}
		})
	}
}

// TestCopyContextIsCopy: as long as the context goes on, the results are those of Copy.
func TestCopyContextIsCopy(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	text := bytes.Repeat([]byte("penstock"), 10_000)
	var out bytes.Buffer
	limited := &io.LimitedReader{R: bytes.NewReader(text), N: 8}
	if n, err := relay.CopyContext(ctx, &out, limited); n != 8 || err != nil || limited.N != 0 || out.String() != "penstock" {
		t.Errorf("limited: %d bytes, %v, %d left", n, err, limited.N)
	}
	out.Reset()
	if n, err := relay.CopyContext(ctx, &out, iotest.HalfReader(bytes.NewReader(text))); n != int64(len(text)) || err != nil || !bytes.Equal(out.Bytes(), text) {
		t.Errorf("a reader: %d bytes, %v", n, err)
	}
	f := sparseFile(t, 40<<20)
	if n, err := relay.CopyContext(ctx, io.Discard, f); n != 40<<20 || err != nil {
		t.Errorf("a file: %d bytes, %v", n, err)
	}
	if n, err := relay.CopyContext(ctx, io.Discard, iotest.ErrReader(errEnough)); n != 0 || err != errEnough {
		t.Errorf("a failing reader: %d bytes, %v", n, err)
	}
}

// A countingReader has no deadlines and no end.
type countingReader struct {
	reads int
	at    func(reads int)
}

func (c *countingReader) Read(p []byte) (int, error) {
	c.reads++
	c.at(c.reads)
	return len(p), nil
}

// TestCopyContextWithoutDeadlines: between two calls of ends without deadlines the context is asked.
func TestCopyContextWithoutDeadlines(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancelCause(t.Context())
	src := &countingReader{at: func(n int) {
		if n == 3 {
			cancel(errEnough)
		}
	}}
	if _, err := relay.CopyContext(ctx, struct{ io.Writer }{io.Discard}, src); err != errEnough || src.reads != 3 {
		t.Errorf("%v after %d reads", err, src.reads)
	}
}
