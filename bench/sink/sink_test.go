package sink_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/sink"
	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
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
	c := must.Get(net.Dial("tcp", address))(t)
	t.Cleanup(func() { _ = c.Close() })
	must.Do(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c.(*net.TCPConn)
}

func send(t *testing.T, c io.Writer, b []byte) {
	t.Helper()
	must.Get(c.Write(b))(t)
}

func closeWrite(t *testing.T, c *net.TCPConn) {
	t.Helper()
	must.Do(t, c.CloseWrite())
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
	for _, message := range []string{"x", "hello\n", "bulk", "GET", "GET / HTTP/1.1\r\n", "bulky goods\n", "once", string(make([]byte, 20<<20))} {
		c := dial(t, address)
		go func() {
			_, _ = io.WriteString(c, message)
			_ = c.CloseWrite()
		}()
		sockets.ExpectAll(t, c, message)
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
		sockets.ExpectAll(t, c, want)
	}
}
