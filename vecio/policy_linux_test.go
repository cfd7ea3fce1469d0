package vecio_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// A clock stands still until pass advances it.
type clock int64

func (c *clock) now() int64 { return int64(*c) }

func (c *clock) pass(d time.Duration) { *c += clock(d) }

func wantDue(t *testing.T, w *vecio.Writer, in time.Duration, ok bool) {
	t.Helper()
	if d, is := w.Due(); d != in || is != ok {
		t.Errorf("due in %v, %v; want %v, %v", d, is, in, ok)
	}
}

// TestEndByPolicy checks the effect of End on every path.
func TestEndByPolicy(t *testing.T) {
	for policy, pending := range map[vecio.Policy]int{vecio.Latency: 0, vecio.Batch: 15, vecio.Adaptive: 0} {
		cfg := &vecio.Config{Policy: policy, Bound: time.Hour}
		r, pipe, err := os.Pipe()
		must.Do(t, err)
		defer r.Close()
		defer pipe.Close()
		tcp, _ := sockets.TCPPair(t)
		unix, _ := sockets.UnixPair(t)
		for name, w := range map[string]*vecio.Writer{
			"tcp": newWriter(t, tcp, cfg), "unix": newWriter(t, unix, cfg), "pipe": newWriter(t, pipe, cfg),
			"wrapper": newWriter(t, &wrapped{tcp}, cfg), "memory": newWriter(t, new(bytes.Buffer), cfg),
			"tcp socket": newSocket(t, tcp, cfg), "unix socket": newSocket(t, unix, cfg),
		} {
			must.Do(t, w.AppendString("hello"), w.AppendString(", "))
			if w.Pending() != 7 {
				t.Errorf("%v, %s: %d bytes pending of an incomplete unit, want 7", policy, name, w.Pending())
			}
			must.Do(t, w.AppendString("worlds!!"), w.End())
			if s := w.Stats(); w.Pending() != pending || s.Units != 1 || s.Early != 0 || s.Corked != 0 {
				t.Errorf("%v, %s: %d bytes pending, want %d; %+v", policy, name, w.Pending(), pending, s)
			}
			must.Do(t, w.Flush(), w.Close())
		}
	}
}

// TestNoDelay: every writer of TCP has set TCP_NODELAY, even if it was cleared before.
func TestNoDelay(t *testing.T) {
	for _, policy := range []vecio.Policy{vecio.Latency, vecio.Batch, vecio.Adaptive} {
		client, server := sockets.TCPPair(t)
		for _, c := range []*net.TCPConn{client, server} {
			must.Do(t, c.SetNoDelay(false))
		}
		newWriter(t, client, &vecio.Config{Policy: policy})
		newSocket(t, server, &vecio.Config{Policy: policy})
		for _, c := range []*net.TCPConn{client, server} {
			if on, err := sys.GetsockoptInt(sockets.FD(t, c), sys.IPPROTO_TCP, sys.TCP_NODELAY); on == 0 || err != nil {
				t.Errorf("%v: TCP_NODELAY is %d, %v", policy, on, err)
			}
		}
	}
}

func TestDueAdaptive(t *testing.T) {
	const bound = 300 * time.Microsecond
	var c clock
	client, server := sockets.TCPPair(t)
	w := newSocket(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: bound, Now: c.now})
	wantDue(t, w, 0, false)
	must.Do(t, w.AppendString("a"))
	wantDue(t, w, bound, true)
	c.pass(100 * time.Microsecond)
	must.Do(t, w.AppendString("b")) // does not begin again
	wantDue(t, w, 200*time.Microsecond, true)
	c.pass(time.Hour)
	wantDue(t, w, 0, true)
	if w.Pending() != 2 {
		t.Errorf("%d bytes are pending: no call was made", w.Pending())
	}
	must.Do(t, w.Flush())
	wantDue(t, w, 0, false)

	must.Do(t, w.AppendString("c"))
	c.pass(bound)
	must.Do(t, w.AppendString("d")) // no timer is armed: it looks at the clock itself
	if w.Pending() != 0 {
		t.Errorf("%d bytes are pending after the bound", w.Pending())
	}
	wantDue(t, w, 0, false)
	must.Do(t, w.AppendString("e"), w.End())
	wantDue(t, w, 0, false)
	if got := string(received(t, server, 5)); got != "abcde" {
		t.Errorf("got %q", got)
	}
}

// TestDueOfTheKernels: bytes that the kernel keeps under a cork are due too, though
// nothing is pending.
func TestDueOfTheKernels(t *testing.T) {
	var c clock
	client, server := maxsegPair(t)
	w := newSocket(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: time.Millisecond, Now: c.now})
	must.Do(t, w.Append(random(2000)))
	if w.Pending() != 0 {
		t.Fatalf("%d bytes are pending", w.Pending())
	}
	wantCork(t, client, true)
	wantDue(t, w, time.Millisecond, true)
	must.Do(t, w.Flush())
	wantCork(t, client, false)
	wantDue(t, w, 0, false)
	received(t, server, 2000)
}

func TestDueOfOthers(t *testing.T) {
	var c clock
	for name, x := range map[string]struct {
		cfg vecio.Config
		in  time.Duration
		ok  bool
	}{
		"latency":         {vecio.Config{Policy: vecio.Latency, Bound: time.Second}, 0, false},
		"batch":           {vecio.Config{Policy: vecio.Batch}, 0, false},
		"batch, bounded":  {vecio.Config{Policy: vecio.Batch, Bound: time.Second}, time.Second, true},
		"adaptive, plain": {vecio.Config{Policy: vecio.Adaptive}, vecio.DefaultBound, true},
	} {
		t.Run(name, func(t *testing.T) {
			x.cfg.Now = c.now
			w := newWriter(t, new(bytes.Buffer), &x.cfg)
			must.Do(t, w.AppendString("a"))
			wantDue(t, w, x.in, x.ok)
			must.Do(t, w.Flush())
			wantDue(t, w, 0, false)
		})
	}
}

// TestAFailedWriterIsNotDue, whatever was waiting.
func TestAFailedWriterIsNotDue(t *testing.T) {
	var c clock
	w, err := vecio.NewScripted(func([][]byte) (int, error) { return 0, syscall.EPIPE }, &vecio.Config{Policy: vecio.Adaptive, Now: c.now})
	must.Do(t, err, w.AppendString("a"))
	wantDue(t, w, vecio.DefaultBound, true)
	must.Is(t, w.Flush(), syscall.EPIPE)
	wantDue(t, w, 0, false)
}

// TestBlockedIsNotDue: a writer that waits for the descriptor needs no timer. Appending
// meanwhile makes no useless calls.
func TestBlockedIsNotDue(t *testing.T) {
	client, server := sockets.TCPPair(t)
	var c clock
	w := newSocket(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: time.Hour, High: 64 << 20, Now: c.now})
	total, piece := 0, random(1<<20)
	for w.Pending() == 0 {
		must.Do(t, w.Append(piece))
		total += len(piece)
	}
	wantDue(t, w, time.Hour, true) // no call has returned ErrBlocked yet
	calls := w.Stats().Calls
	must.Do(t, w.Append(piece))
	total += len(piece)
	if n := w.Stats().Calls - calls; n != 0 {
		t.Errorf("%d useless calls", n)
	}
	if err := w.End(); err != vecio.ErrBlocked {
		t.Fatalf("got %v, want ErrBlocked", err)
	}
	wantDue(t, w, 0, false)
	calls = w.Stats().Calls
	must.Do(t, w.Append(piece))
	total += len(piece)
	if err := w.End(); err != vecio.ErrBlocked || w.Stats().Calls != calls {
		t.Errorf("got %v after %d calls, want ErrBlocked and none", err, w.Stats().Calls-calls)
	}
	done := make(chan []byte)
	go func() { done <- received(t, server, total) }()
	for deadline := time.Now().Add(condition.Patience); ; {
		err := w.Flush()
		if err == nil {
			break
		}
		if err != vecio.ErrBlocked || time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	<-done
	wantDue(t, w, 0, false)
	must.Do(t, w.AppendString("a"), w.End())
}

func TestBadPolicies(t *testing.T) {
	for text, cfg := range map[string]vecio.Config{
		"Latency, Batch or Adaptive": {Policy: 3},
		"Bound":                      {Policy: vecio.Adaptive, Bound: -1},
	} {
		if _, err := vecio.New(new(bytes.Buffer), &cfg); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want something on %q", err, text)
		}
	}
	if s := vecio.Policy(9).String(); s != "Policy(9)" {
		t.Error(s)
	}
}

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
				must.Do(t, client.SetNoDelay(false)) // the writer sees to it
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
						must.Do(t, w.Flush())
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
	must.Do(t, w.Append(random(10)), w.Append(second))
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
		"flush": {random(16), func(t *testing.T, w *vecio.Writer, _ *net.TCPConn) { must.Do(t, w.Flush()) }},
		"close": {random(16), func(t *testing.T, w *vecio.Writer, _ *net.TCPConn) {
			if err := w.Close(); err == nil {
				t.Error("Close does not report the pending bytes")
			}
		}},
		"reset": {random(16), func(t *testing.T, w *vecio.Writer, _ *net.TCPConn) { must.Do(t, w.Reset(new(wrapped))) }},
		"timeout": {random(16), func(t *testing.T, w *vecio.Writer, client *net.TCPConn) {
			must.Do(t, client.SetWriteDeadline(time.Unix(1, 0)))
			if err := w.Flush(); !errors.Is(err, os.ErrDeadlineExceeded) || w.Pending() != 16 {
				t.Errorf("got %v, want a timeout; %d bytes are pending", err, w.Pending())
			}
		}},
		"error": {unreadable, func(t *testing.T, w *vecio.Writer, _ *net.TCPConn) {
			must.Is(t, w.Flush(), syscall.EFAULT)
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
			must.Do(t, w.Append(random(2000)))
			wantCork(t, client, true)
			must.Do(t, end(w))
		})
		wantDue(t, w, 0, false)
		wantCork(t, client, false)
		if d > slow {
			t.Errorf("%s: 2000 bytes took %v", name, d)
		}
	}
}

// TestAClosedConnectionHasNothingToUncork: nor is a descriptor touched that has its
// number by now.
func TestAClosedConnectionHasNothingToUncork(t *testing.T) {
	client, _ := sockets.TCPPair(t)
	w := newWriter(t, client, full)
	early(t, client, w, random(16))
	fd := sockets.FD(t, client)
	must.Do(t, client.Close())
	other, _ := sockets.TCPPair(t)
	if sockets.FD(t, other) != fd {
		t.Log("the number was not used again")
	}
	must.Do(t, sys.SetsockoptInt(sockets.FD(t, other), sys.IPPROTO_TCP, sys.TCP_CORK, 1))
	must.Is(t, w.Flush(), net.ErrClosed)
	must.Do(t, w.Close())
	wantCork(t, other, true)
}

// maxsegPair needs no rights: both ends request small segments.
func maxsegPair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	client, server, err := dialed(func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = sys.SetsockoptInt(int(fd), sys.IPPROTO_TCP, sys.TCP_MAXSEG, 1448)
		}), err)
	})
	return opened(t, client, server, err)
}

func dialed(control func(network, address string, c syscall.RawConn) error) (client, server *net.TCPConn, err error) {
	lc := net.ListenConfig{Control: control}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	d := net.Dialer{Control: control}
	d.SetMultipathTCP(false)
	c, err := d.Dial("tcp4", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	s, err := l.Accept()
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c.(*net.TCPConn), s.(*net.TCPConn), nil
}

func opened(t *testing.T, client, server *net.TCPConn, err error) (_, _ *net.TCPConn) {
	t.Helper()
	must.Do(t, err)
	t.Cleanup(func() { client.Close(); server.Close() })
	if n := segmentsOf(t, client).Snd_mss; n < 1000 || n > 1460 {
		t.Fatalf("segments of %d bytes", n)
	}
	return client, server
}

func segmentsOf(t testing.TB, c *net.TCPConn) (info sys.TCPInfo) {
	t.Helper()
	must.Do(t, sys.GetTCPInfo(sockets.FD(t, c), &info))
	return info
}

// segments has f send total bytes to the server, which reads them all. It returns the
// number of segments that they took, without retransmissions.
func segments(t *testing.T, client, server *net.TCPConn, total int, f func()) int {
	t.Helper()
	before := segmentsOf(t, client)
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, server, int64(total))
		read <- err
	}()
	f()
	must.Do(t, <-read)
	after := segmentsOf(t, client)
	return int(after.Data_segs_out-before.Data_segs_out) - int(after.Total_retrans-before.Total_retrans)
}

// fewest is the least number of segments that so many bytes need.
func fewest(t *testing.T, c *net.TCPConn, total int) int {
	n := int(segmentsOf(t, c).Snd_mss)
	return (total + n - 1) / n
}

// promptly repeats f, which has to be over before the timer of a cork could have
// had a part in it, and reports that; a busy machine may need several attempts.
func promptly(t *testing.T, f func() bool) {
	t.Helper()
	for range 20 {
		if f() {
			return
		}
	}
	t.Fatal("this machine holds tests up too often to count segments: each attempt took as long as the cork's timer")
}

// quick reports whether f takes less than the timer's 200 ms (net/ipv4/tcp_output.c, TCP_RTO_MIN).
func quick(f func()) bool {
	start := time.Now()
	f()
	return time.Since(start) < 150*time.Millisecond
}

// message is a unit of header, payload and trailer, in three pieces.
var message = [][]byte{random(180), random(5000), random(70)}

func lengths(pieces [][]byte) (total int) {
	for _, p := range pieces {
		total += len(p)
	}
	return total
}

// unit appends all pieces and ends the unit.
func unit(t testing.TB, w *vecio.Writer, pieces [][]byte) {
	t.Helper()
	for _, p := range pieces {
		must.Do(t, w.Append(p))
	}
	must.Do(t, w.End())
}

// TestFewestSegments: a message of header, payload and trailer, and with Batch several
// of them, take no more segments than their bytes need.
func TestFewestSegments(t *testing.T) {
	for _, policy := range []vecio.Policy{vecio.Latency, vecio.Batch, vecio.Adaptive} {
		t.Run(policy.String(), func(t *testing.T) {
			client, server := maxsegPair(t)
			cfg := &vecio.Config{Policy: policy, Bound: time.Hour}
			for name, w := range map[string]*vecio.Writer{
				"conn": newWriter(t, client, cfg), "socket": newSocket(t, client, cfg),
			} {
				countMessages(t, name, client, server, w, policy)
			}
		})
	}
}

func countMessages(t *testing.T, name string, client, server *net.TCPConn, w *vecio.Writer, policy vecio.Policy) {
	t.Helper()
	units := 1
	if policy == vecio.Batch {
		units = 3
	}
	total := units * lengths(message)
	promptly(t, func() bool {
		var got int
		in := quick(func() {
			got = segments(t, client, server, total, func() {
				for range units {
					unit(t, w, message)
				}
				must.Do(t, w.Flush())
			})
		})
		if least := fewest(t, client, total); in && got != least {
			t.Errorf("%s: %d segments, needed are %d", name, got, least)
		}
		return in
	})
}

// TestPartsLeaveInFullSegments: bytes may leave before a unit is complete, because they
// fill a segment or do not fit below the high mark. They leave in full segments only.
func TestPartsLeaveInFullSegments(t *testing.T) {
	for name, cfg := range map[string]*vecio.Config{
		"adaptive":              {Policy: vecio.Adaptive, Bound: time.Hour},
		"batch, high mark":      {Policy: vecio.Batch, High: 4000},
		"latency, high mark":    {Policy: vecio.Latency, High: 4000},
		"adaptive, by the byte": {Policy: vecio.Adaptive, Bound: time.Hour, CopyBelow: -1},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := maxsegPair(t)
			w := newWriter(t, client, cfg)
			promptly(t, func() bool { return partsInFullSegments(t, client, server, w) })
		})
	}
}

func partsInFullSegments(t *testing.T, client, server *net.TCPConn, w *vecio.Writer) bool {
	t.Helper()
	const parts, size = 30, 997
	piece, before := random(size), w.Stats()
	var got int
	in := quick(func() {
		got = segments(t, client, server, parts*size, func() {
			for range parts {
				must.Do(t, w.Append(piece))
			}
			wantCork(t, client, true)
			must.Do(t, w.End(), w.Flush())
			wantCork(t, client, false)
		})
	})
	if s := w.Stats(); s.Early == before.Early || s.Corked != before.Corked+1 {
		t.Errorf("nothing left early: %+v", s)
	}
	if least := fewest(t, client, parts*size); in && got != least {
		t.Errorf("%d segments, needed are %d", got, least)
	}
	return in
}

// TestAFullSegmentDoesNotWait: with Adaptive the peer has all full segments of a unit
// that never ends.
func TestAFullSegmentDoesNotWait(t *testing.T) {
	client, server := maxsegPair(t)
	w := newWriter(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: time.Hour})
	sent := 0
	for _, p := range [][]byte{random(800), random(800), random(9000)} {
		must.Do(t, w.Append(p))
		if sent += len(p); sent == 800 && w.Stats().Calls != 0 {
			t.Error("bytes that fill no segment have left")
		}
	}
	n := int(segmentsOf(t, client).Snd_mss)
	received(t, server, sent/n*n)
	if w.Pending() != 0 {
		t.Errorf("%d bytes are pending", w.Pending())
	}
	must.Do(t, w.Flush())
	received(t, server, sent%n)
}

// TestManyCallsAreOneFlush: one that takes several calls makes no segment that is not
// full between them.
func TestManyCallsAreOneFlush(t *testing.T) {
	const pieces, size = 5000, 10
	piece := random(size)
	promptly(t, func() bool {
		client, server := maxsegPair(t)
		w := newWriter(t, client, &vecio.Config{CopyBelow: -1, High: 1 << 30})
		var got int
		in := quick(func() {
			got = segments(t, client, server, pieces*size, func() {
				for range pieces {
					must.Do(t, w.Append(piece))
				}
				must.Do(t, w.End())
			})
		})
		calls, least := int(w.Stats().Calls), fewest(t, client, pieces*size)
		if in && (calls < 5 || got != least) {
			t.Errorf("%d segments by %d calls, needed are %d", got, calls, least)
		}
		wantCork(t, client, false)
		return in
	})
}
