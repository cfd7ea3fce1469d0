package sink_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/sink"
	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestMain(m *testing.M) { leak.Main(m) }

// serving runs a sink until the test ends, and returns its address.
func serving(t *testing.T, threads int) string {
	t.Helper()
	return sockets.Run(t, func(ctx context.Context, l *net.TCPListener) error { return sink.Serve(ctx, l, threads) })
}

// dial connects; the test ends if the connection is idle for a minute.
func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// send sends b.
func send(t *testing.T, c io.Writer, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func closeWrite(t *testing.T, c *net.TCPConn) {
	t.Helper()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func TestBulkStreamsUntilTheClientHalfCloses(t *testing.T) {
	c := dial(t, serving(t, 1))
	for _, piece := range []string{"bul", "k 9", "\n"} {
		send(t, c, []byte(piece))
	}
	content, buf := traffic.NewStream(9), make([]byte, 3<<20)
	if _, err := io.ReadFull(c, buf); err != nil || !content.Check(buf) {
		t.Fatalf("the first 3 MiB are wrong: %v", err)
	}
	closeWrite(t, c)
	rest, err := io.ReadAll(c)
	if err != nil || len(rest) < traffic.TrailerSize {
		t.Fatalf("%d bytes after the half-close, %v", len(rest), err)
	}
	last := len(rest) - traffic.TrailerSize
	if !content.Check(rest[:last]) {
		t.Error("the rest is wrong")
	}
	if got, want := traffic.ParseTrailer(rest[last:]), int64(len(buf)+last); got != want {
		t.Errorf("the trailer has %d, received %d", got, want)
	}
}

// The client sends all bytes before it reads any. For the longest message that exceeds the
// buffers of both sockets.
func TestEverythingElseComesBack(t *testing.T) {
	address := serving(t, 2)
	for _, message := range []string{"x", "hello\n", "bulk", "GET", "GET / HTTP/1.1\r\n", "bulky goods\n", "tell", string(make([]byte, 20<<20))} {
		c := dial(t, address)
		go func() {
			_, _ = io.WriteString(c, message)
			_ = c.CloseWrite()
		}()
		if back, err := io.ReadAll(c); err != nil || string(back) != message {
			t.Errorf("%.20q: got %d bytes, %.20q, %v", message, len(back), back, err)
		}
	}
}

func TestOnceClosesFirst(t *testing.T) {
	address := serving(t, 1)
	for _, pieces := range [][]string{{"once 12\nabcd"}, {"onc", "e 12\n", "ab", "cd"}, {"once 8\n", "x"}} {
		c := dial(t, address)
		var want string
		for _, p := range pieces {
			send(t, c, []byte(p))
			want += p
		}
		if back, err := io.ReadAll(c); err != nil || string(back) != want {
			t.Errorf("%q: got %q, %v", want, back, err)
		}
	}
}

func TestRequestsThatMakeNoSenseAreClosed(t *testing.T) {
	address := serving(t, 1)
	for _, request := range []string{"bulk \n", "bulk -1\n", "once 3\n", "once x\n", "script {\n", "script {\"give\":-1}\n", "tell me\n", "tell " + string(make([]byte, 400))} {
		c := dial(t, address)
		send(t, c, []byte(request))
		// If the bytes after a line were not read, the end is a reset.
		if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%.20q: got %q, %v", request, rest, err)
		}
	}
}

// ended asks for a report until the connection has ended.
func ended(t *testing.T, address string, token uint64) traffic.Report {
	t.Helper()
	for {
		c := dial(t, address)
		send(t, c, traffic.AppendTell(nil, token))
		line, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		r, err := traffic.ParseReport(line)
		if err != nil {
			t.Fatal(err)
		}
		if r.State != traffic.StateOpen {
			return r
		}
		time.Sleep(time.Millisecond)
	}
}

func TestScripts(t *testing.T) {
	address := serving(t, 2)
	upload := bytes.Repeat([]byte("up"), 300_000)
	var all sync.WaitGroup
	for i, s := range []traffic.Script{
		{Give: 0},
		{Give: 1},
		{Give: 2<<20 + 1},
		{Give: 2<<20 + 1, After: true},
		{Give: 1000, Slow: true},
		{Give: 1000, Slow: true, After: true},
	} {
		s.Token, s.Seed = uint64(i+100), uint32(i)
		all.Go(func() {
			c := dial(t, address)
			go func() {
				_, _ = c.Write(append(traffic.AppendScript(nil, s), upload...))
				_ = c.CloseWrite()
			}()
			down, err := io.ReadAll(c)
			if err != nil || int64(len(down)) != s.Give || !traffic.NewStream(s.Seed).Check(down) {
				t.Errorf("%+v: got %d bytes, or wrong ones, %v", s, len(down), err)
			}
			r, sum := ended(t, address, s.Token), sha256.Sum256(upload)
			if r.State != traffic.StateEnded || r.Received != int64(len(upload)) || r.Sent != s.Give || !bytes.Equal(r.Sum, sum[:]) {
				t.Errorf("%+v: %+v", s, r)
			}
		})
	}
	all.Wait()
	if r := ended(t, address, 1); r.State != traffic.StateNone {
		t.Errorf("of an unknown token: %+v", r)
	}
}

func TestAScriptThatResets(t *testing.T) {
	address := serving(t, 1)
	c := dial(t, address)
	send(t, c, traffic.AppendScript(nil, traffic.Script{Token: 1, Give: 10, Reset: true}))
	if _, err := io.ReadFull(c, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	send(t, c, []byte("x"))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want ECONNRESET", err)
	}
	if r := ended(t, address, 1); r.State != traffic.StateAbort || r.Received != 1 {
		t.Errorf("%+v", r)
	}
}

// A client resets: while idle, while it downloads, after its own end.
func TestResetsAreSeen(t *testing.T) {
	address := serving(t, 1)
	for i, test := range []struct {
		script traffic.Script
		half   bool
	}{
		{traffic.Script{Give: 10, Reset: true}, false},
		{traffic.Script{Give: 10}, false},
		{traffic.Script{Give: 1 << 40}, false},
		{traffic.Script{Give: 1 << 40}, true},
		{traffic.Script{Give: 1 << 40, After: true}, true},
	} {
		c := dial(t, address)
		test.script.Token = uint64(i + 1)
		send(t, c, traffic.AppendScript(nil, test.script))
		if test.half {
			closeWrite(t, c)
		}
		if _, err := io.ReadFull(c, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		_ = c.SetLinger(0)
		_ = c.Close()
		if r := ended(t, address, test.script.Token); r.State != traffic.StateReset {
			t.Errorf("%+v: %+v", test, r)
		}
	}
}

func TestServeEndsWithConnectionsOpen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sink.Serve(ctx, l.(*net.TCPListener), 2) }()
	for range 20 {
		c := dial(t, l.Addr().String())
		send(t, c, []byte("bulk 1\n"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServeOfAClosedListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := sink.Serve(t.Context(), l.(*net.TCPListener), 1); err == nil {
		t.Error("no error")
	}
}
