package vecio_test

import (
	"bytes"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
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
		must(t, err)
		defer r.Close()
		defer pipe.Close()
		tcp, _ := sockets.TCPPair(t)
		unix, _ := sockets.UnixPair(t)
		for name, w := range map[string]*vecio.Writer{
			"tcp": newWriter(t, tcp, cfg), "unix": newWriter(t, unix, cfg), "pipe": newWriter(t, pipe, cfg),
			"wrapper": newWriter(t, &wrapped{tcp}, cfg), "memory": newWriter(t, new(bytes.Buffer), cfg),
			"tcp socket": newSocket(t, tcp, cfg), "unix socket": newSocket(t, unix, cfg),
		} {
			must(t, w.AppendString("hello"), w.AppendString(", "))
			if w.Pending() != 7 {
				t.Errorf("%v, %s: %d bytes pending of an incomplete unit, want 7", policy, name, w.Pending())
			}
			must(t, w.AppendString("worlds!!"), w.End())
			if s := w.Stats(); w.Pending() != pending || s.Units != 1 || s.Early != 0 || s.Corked != 0 {
				t.Errorf("%v, %s: %d bytes pending, want %d; %+v", policy, name, w.Pending(), pending, s)
			}
			must(t, w.Flush(), w.Close())
		}
	}
}

// TestNoDelay: every writer of TCP has set TCP_NODELAY, even if it was cleared before.
func TestNoDelay(t *testing.T) {
	for _, policy := range []vecio.Policy{vecio.Latency, vecio.Batch, vecio.Adaptive} {
		client, server := sockets.TCPPair(t)
		for _, c := range []*net.TCPConn{client, server} {
			must(t, c.SetNoDelay(false))
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
	must(t, w.AppendString("a"))
	wantDue(t, w, bound, true)
	c.pass(100 * time.Microsecond)
	must(t, w.AppendString("b")) // does not begin anew
	wantDue(t, w, 200*time.Microsecond, true)
	c.pass(time.Hour)
	wantDue(t, w, 0, true)
	if w.Pending() != 2 {
		t.Errorf("%d bytes are pending: no call was made", w.Pending())
	}
	must(t, w.Flush())
	wantDue(t, w, 0, false)

	must(t, w.AppendString("c"))
	c.pass(bound)
	must(t, w.AppendString("d")) // no timer is armed: it looks at the clock itself
	if w.Pending() != 0 {
		t.Errorf("%d bytes are pending after the bound", w.Pending())
	}
	wantDue(t, w, 0, false)
	must(t, w.AppendString("e"), w.End())
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
	must(t, w.Append(random(2000)))
	if w.Pending() != 0 {
		t.Fatalf("%d bytes are pending", w.Pending())
	}
	wantCork(t, client, true)
	wantDue(t, w, time.Millisecond, true)
	must(t, w.Flush())
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
			must(t, w.AppendString("a"))
			wantDue(t, w, x.in, x.ok)
			must(t, w.Flush())
			wantDue(t, w, 0, false)
		})
	}
}

// TestBlockedIsNotDue: a writer that waits for the descriptor needs no timer. Appending
// meanwhile makes no useless calls.
func TestBlockedIsNotDue(t *testing.T) {
	client, server := sockets.TCPPair(t)
	var c clock
	w := newSocket(t, client, &vecio.Config{Policy: vecio.Adaptive, Bound: time.Hour, High: 64 << 20, Now: c.now})
	total, piece := 0, random(1<<20)
	for w.Pending() == 0 {
		must(t, w.Append(piece))
		total += len(piece)
	}
	wantDue(t, w, time.Hour, true) // no call has returned ErrBlocked yet
	calls := w.Stats().Calls
	must(t, w.Append(piece))
	total += len(piece)
	if n := w.Stats().Calls - calls; n != 0 {
		t.Errorf("%d useless calls", n)
	}
	if err := w.End(); err != vecio.ErrBlocked {
		t.Fatalf("got %v, want ErrBlocked", err)
	}
	wantDue(t, w, 0, false)
	calls = w.Stats().Calls
	must(t, w.Append(piece))
	total += len(piece)
	if err := w.End(); err != vecio.ErrBlocked || w.Stats().Calls != calls {
		t.Errorf("got %v after %d calls, want ErrBlocked and none", err, w.Stats().Calls-calls)
	}
	done := make(chan []byte)
	go func() { done <- received(t, server, total) }()
	for deadline := time.Now().Add(time.Minute); ; {
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
	must(t, w.AppendString("a"), w.End())
}

// TestAFailedWriterIsNotDue, whatever was waiting.
func TestAFailedWriterIsNotDue(t *testing.T) {
	var c clock
	client, _ := sockets.TCPPair(t)
	w := newSocket(t, client, &vecio.Config{Policy: vecio.Adaptive, Now: c.now})
	must(t, client.CloseWrite(), w.AppendString("a"))
	if err := w.Flush(); err == nil {
		t.Error("a write after a shutdown is fine")
	}
	wantDue(t, w, 0, false)
	if w.End() == nil || w.AppendString("b") == nil {
		t.Error("a failed writer continues")
	}
	wantDue(t, w, 0, false)
}

func TestBadPolicies(t *testing.T) {
	for text, cfg := range map[string]vecio.Config{
		"Latency, Batch or Adaptive": {Policy: 3},
		"bound":                      {Policy: vecio.Adaptive, Bound: -1},
	} {
		if _, err := vecio.New(new(bytes.Buffer), &cfg); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want something on %q", err, text)
		}
	}
	if s := vecio.Policy(9).String(); s != "Policy(9)" {
		t.Error(s)
	}
}
