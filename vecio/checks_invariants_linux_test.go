//go:build invariants

package vecio_test

import (
	"bytes"
	"io"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/place"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// TestChangedPiece: a borrowed piece that is changed before it is sent is found by the call that sends
// it, on each path and however it was given, and the panic names the place where it was given.
func TestChangedPiece(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *vecio.Writer{
		"conn":      func(t *testing.T) *vecio.Writer { a, _ := sockets.TCPPair(t); return newWriter(t, a, nil) },
		"socket":    func(t *testing.T) *vecio.Writer { a, _ := sockets.TCPPair(t); return newSocket(t, a, nil) },
		"coalesced": func(t *testing.T) *vecio.Writer { return newWriter(t, new(bytes.Buffer), nil) },
	} {
		for way, give := range map[string]func(w *vecio.Writer, p []byte) (string, error){
			"append": func(w *vecio.Writer, p []byte) (string, error) {
				at := place.Next()
				return at, w.Append(p)
			},
			"own": func(w *vecio.Writer, p []byte) (string, error) {
				at := place.Next()
				return at, w.Own(p, vecio.ReleaseFunc(nil))
			},
			"append to more": func(w *vecio.Writer, p []byte) (string, error) {
				if err := w.Append(make([]byte, 3000)); err != nil {
					return "", err
				}
				at := place.Next()
				return at, w.Append(p)
			},
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				w, p := open(t), make([]byte, 10_000)
				at := must.Get(give(w, p))(t)
				p[5000]++
				got := place.Panic(func() { _ = w.Flush() })
				place.Named(t, got, "a piece of 10000 bytes was changed before it was sent: bytes 4096 to 8191 of it differ", "\tgiven at "+at+" (")
				must.Do(t, w.Reset(io.Discard))
			})
		}
	}
}

// TestChangedPartlySent: of a piece that leaves in parts, a change of bytes that are still to be sent is
// found by the call that sends them, and one of bytes that were sent when the rest has left.
func TestChangedPartlySent(t *testing.T) {
	for name, c := range map[string]struct {
		change int
		found  int // the call that finds it
	}{
		"to be sent": {15_000, 2},
		"sent":       {100, 3},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			w := must.Get(vecio.NewScripted(func(pieces [][]byte) (int, error) {
				if calls++; calls%2 == 0 {
					return 0, syscall.EAGAIN
				}
				return min(8192, len(pieces[0])), nil
			}, nil))(t)
			p := make([]byte, 20_000)
			must.Do(t, w.Append(p))
			found := 0
			for flush := 1; flush < 5 && found == 0; flush++ {
				if place.Panic(func() { _ = w.Flush() }) != "" {
					found = flush
				}
				if flush == 1 {
					p[c.change]++
				}
			}
			if found != c.found {
				t.Errorf("found by flush %d, want %d", found, c.found)
			}
			must.Do(t, w.Reset(io.Discard))
		})
	}
}

// TestUnchangedPieces: pieces that were copied may be changed at once, others when they are sent, and
// those of a writer that was reset.
func TestUnchangedPieces(t *testing.T) {
	w := newWriter(t, struct{ io.Writer }{io.Discard}, nil)
	short, long := make([]byte, 100), make([]byte, 10_000)
	for range 10 {
		must.Do(t, w.Append(short))
		short[0]++
		must.Do(t, w.AppendCopy(long))
		long[0]++
		must.Do(t, w.Append(long), w.Flush())
		long[0]++
		must.Do(t, w.Append(long))
		must.Do(t, w.Reset(io.Discard))
		long[0]++
	}
}
