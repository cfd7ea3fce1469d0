package vecio_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

func wantCork(t testing.TB, c syscall.Conn, want bool) {
	t.Helper()
	on, err := sys.GetsockoptInt(sockets.FD(t, c), sys.IPPROTO_TCP, sys.TCP_CORK)
	if err != nil || (on != 0) != want {
		t.Errorf("TCP_CORK is %d, %v; want %v", on, err, want)
	}
}

// arrival is how long it takes from f until the server has read n bytes.
func arrival(t testing.TB, server net.Conn, n int, f func()) time.Duration {
	t.Helper()
	start := time.Now()
	f()
	received(t, server, n)
	return time.Since(start)
}

// slow bounds every arrival that does not wait for a timer. A tenth of it is already a
// lot, and the cork's timer is four times as long.
const slow = 50 * time.Millisecond

// TestACorkWaits shows the trap that the others are not caught in.
func TestACorkWaits(t *testing.T) {
	client, server := sockets.TCPPair(t)
	must(t, sys.SetsockoptInt(sockets.FD(t, client), sys.IPPROTO_TCP, sys.TCP_CORK, 1))
	d := arrival(t, server, 10, func() {
		_, err := client.Write(random(10))
		must(t, err)
	})
	if t.Log("a corked message took", d); d < slow {
		t.Errorf("it took %v, expected about 200ms", d)
	}
}

// TestNoMessageWaits: whatever the policy, the path and the sizes, a message is there
// at once when it was ended and flushed.
func TestNoMessageWaits(t *testing.T) {
	large := [][]byte{random(180), random(200_000), random(70)}
	for _, policy := range []vecio.Policy{vecio.Latency, vecio.Batch, vecio.Adaptive} {
		for name, pair := range map[string]func(*testing.T) (_, _ *net.TCPConn){
			"64 KiB segments": func(t *testing.T) (_, _ *net.TCPConn) { return sockets.TCPPair(t) }, "small segments": maxsegPair,
		} {
			t.Run(policy.String()+"/"+name, func(t *testing.T) {
				client, server := pair(t)
				must(t, client.SetNoDelay(false)) // the writer sees to it
				w := newWriter(t, client, &vecio.Config{Policy: policy, High: 16 << 10, Bound: time.Hour})
				var times []time.Duration
				for i := range 20 {
					pieces := [][][]byte{message, large, {{1}}}[i%3]
					got := make(chan time.Duration, 1)
					start := time.Now()
					go func() {
						received(t, server, lengths(pieces))
						got <- time.Since(start)
					}()
					unit(t, w, pieces)
					if policy == vecio.Batch {
						must(t, w.Flush())
					}
					times = append(times, <-got)
				}
				slices.Sort(times)
				if median := times[len(times)/2]; median > slow {
					t.Errorf("half of the messages took %v or more, the fastest one %v", median, times[0])
				}
			})
		}
	}
}

// full has a writer wait at its high mark for the second piece of early.
var full = &vecio.Config{Policy: vecio.Batch, High: 16, CopyBelow: -1}

// early makes a writer cork its socket: the kernel keeps 10 bytes, and the second piece
// is pending.
func early(t *testing.T, client *net.TCPConn, w *vecio.Writer, second []byte) {
	t.Helper()
	must(t, w.Append(random(10)), w.Append(second))
	wantCork(t, client, true)
	if w.Pending() != 16 || w.Stats().Corked != 1 {
		t.Fatalf("%d bytes are pending, %+v", w.Pending(), w.Stats())
	}
}

// TestNothingIsStranded: however a writer that has corked its socket ends, the cork is
// removed. The bytes that the kernel has taken arrive without waiting for the timer.
func TestNothingIsStranded(t *testing.T) {
	unreadable := forbidden(t, 4096)[4096:][:16]
	for name, c := range map[string]struct {
		second []byte
		end    func(t *testing.T, w *vecio.Writer, client *net.TCPConn)
	}{
		"flush": {random(16), func(t *testing.T, w *vecio.Writer, _ *net.TCPConn) { must(t, w.Flush()) }},
		"close": {random(16), func(t *testing.T, w *vecio.Writer, _ *net.TCPConn) {
			if err := w.Close(); err == nil {
				t.Error("Close does not report the pending bytes")
			}
		}},
		"reset": {random(16), func(t *testing.T, w *vecio.Writer, _ *net.TCPConn) { must(t, w.Reset(new(wrapped))) }},
		"timeout": {random(16), func(t *testing.T, w *vecio.Writer, client *net.TCPConn) {
			must(t, client.SetWriteDeadline(time.Unix(1, 0)))
			if err := w.Flush(); !errors.Is(err, os.ErrDeadlineExceeded) || w.Pending() != 16 {
				t.Errorf("got %v, want a timeout; %d bytes are pending", err, w.Pending())
			}
		}},
		"error": {unreadable, func(t *testing.T, w *vecio.Writer, _ *net.TCPConn) {
			if err := w.Flush(); !errors.Is(err, syscall.EFAULT) {
				t.Errorf("got %v, want EFAULT", err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := sockets.TCPPair(t)
			w := newWriter(t, client, full)
			d := arrival(t, server, 10, func() {
				early(t, client, w, c.second)
				c.end(t, w, client)
			})
			wantCork(t, client, false)
			if d > slow {
				t.Errorf("10 bytes took %v", d)
			}
		})
	}
}

// TestNothingPendingIsNotStranded: all was handed over early, and no flush follows.
func TestNothingPendingIsNotStranded(t *testing.T) {
	for name, end := range map[string]func(w *vecio.Writer) error{
		"close": (*vecio.Writer).Close,
		"reset": func(w *vecio.Writer) error { return w.Reset(new(wrapped)) },
	} {
		client, server := maxsegPair(t)
		w := newWriter(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: time.Hour})
		d := arrival(t, server, 2000, func() {
			must(t, w.Append(random(2000)))
			wantCork(t, client, true)
			must(t, end(w))
		})
		wantDue(t, w, 0, false)
		wantCork(t, client, false)
		if d > slow {
			t.Errorf("%s: 2000 bytes took %v", name, d)
		}
	}
}

// TestAResetUncorks: the connection is gone, the option with it.
func TestAResetUncorks(t *testing.T) {
	client, server := sockets.TCPPair(t)
	w := newWriter(t, client, full)
	early(t, client, w, random(16))
	must(t, server.SetLinger(0), server.Close())
	for w.Flush() == nil { // until the reset is here
		must(t, w.Append([]byte{1}))
	}
	wantCork(t, client, false)
}

// TestAClosedConnectionHasNothingToUncork: nor is a descriptor touched that has its
// number by now.
func TestAClosedConnectionHasNothingToUncork(t *testing.T) {
	client, _ := sockets.TCPPair(t)
	w := newWriter(t, client, full)
	early(t, client, w, random(16))
	fd := sockets.FD(t, client)
	must(t, client.Close())
	other, _ := sockets.TCPPair(t)
	if sockets.FD(t, other) != fd {
		t.Log("the number was not used again")
	}
	must(t, sys.SetsockoptInt(sockets.FD(t, other), sys.IPPROTO_TCP, sys.TCP_CORK, 1))
	if err := w.Flush(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	wantCork(t, other, true)
}

// TestBlockedUncorks: a writer that never waits, given up while the kernel takes
// nothing.
func TestBlockedUncorks(t *testing.T) {
	client, _ := maxsegPair(t)
	w := newSocket(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: time.Hour, High: 64 << 20})
	piece := random(1 << 20)
	for w.Pending() == 0 {
		must(t, w.Append(piece)) // each is more than a segment
	}
	wantCork(t, client, true)
	if err := w.Flush(); err != vecio.ErrBlocked {
		t.Errorf("got %v, want ErrBlocked", err)
	}
	if err := w.Close(); err == nil {
		t.Error("Close does not report the pending bytes")
	}
	wantCork(t, client, false)
}
