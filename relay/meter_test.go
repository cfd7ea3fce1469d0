package relay_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// between returns a network whose near ends are metered.
func between(n network, m *relay.Meter) network {
	return func(t testing.TB) (halfConn, net.Conn) {
		far, near := n(t)
		return far, relay.Metered(near, m)
	}
}

// check waits until a meter has counted so much: bytes may arrive before they are counted.
func check(t testing.TB, name string, m *relay.Meter, read, written int64) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		r, w := m.Bytes()
		if r == read && w == written {
			return
		}
		if r > read || w > written || time.Now().After(end) {
			t.Errorf("%s: read %d, written %d; want %d, %d", name, r, w, read, written)
			return
		}
	}
}

// TestMetered: meters count what a session moves beneath their wrappers, while it runs, and do not
// keep it from splicing.
func TestMetered(t *testing.T) {
	t.Parallel()

	const up, down = 1 << 20, 300 << 10
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	for name, n := range networks {
		t.Run(name, func(t *testing.T) {
			var a, b, both relay.Meter
			g := newRig(t, r, between(between(n, &a), &both), between(n, &b))
			pass(t, g.A, g.B, make([]byte, up))
			check(t, "a", &a, up, 0)
			pass(t, g.B, g.A, make([]byte, down))
			check(t, "a", &a, up, down)
			check(t, "both", &both, up, down)
			check(t, "b", &b, down, up)
			_ = g.A.CloseWrite()
			_ = g.B.CloseWrite()
			res, err := g.wait()
			if err != nil || res.AToB.Bytes() != up || res.BToA.Bytes() != down {
				t.Fatalf("%+v, %v", res, err)
			}
			if strings.Contains(name, "tcp") && res.AToB.Fallbacks[relay.FallbackWrapped] != 0 {
				t.Errorf("%+v", res.AToB)
			}
		})
	}
}

// TestMeteredCopies counts those of a copy: spliced, sent from a file, buffered, read ahead, and with a
// limit.
func TestMeteredCopies(t *testing.T) {
	t.Parallel()

	const size = 200 << 10
	content := bytes.Repeat([]byte("meter me"), size/8)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var in *relay.Meter
	conn := func() net.Conn { // that delivers the content
		far, near := tcp(t)
		go func() {
			_, _ = far.Write(content)
			_ = far.CloseWrite()
		}()
		return near
	}
	for name, x := range map[string]struct {
		source func() io.Reader
		read   int64 // by in
		moved  int64
	}{
		"conn":    {func() io.Reader { return relay.Metered(conn(), in) }, size, size},
		"limited": {func() io.Reader { return io.LimitReader(relay.Metered(conn(), in), 1000) }, 1000, 1000},
		"file": {func() io.Reader {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return relay.Metered(relay.Stream(f), in)
		}, size, size},
		"prefixed inside":  {func() io.Reader { return relay.Metered(relay.Prefixed(conn(), []byte("head")), in) }, size + 4, size + 4},
		"prefixed outside": {func() io.Reader { return relay.Prefixed(relay.Metered(conn(), in), []byte("head")) }, size, size + 4},
		"a buffer above":   {func() io.Reader { return bufio.NewReaderSize(relay.Metered(conn(), in), 64) }, size, size},
		"a plain reader":   {func() io.Reader { return bytes.NewReader(content) }, 0, size},
	} {
		t.Run(name, func(t *testing.T) {
			var out relay.Meter
			in = new(relay.Meter)
			far, near := tcp(t)
			var received sync.WaitGroup
			received.Go(func() {
				if n, err := io.Copy(io.Discard, far); err != nil || n != x.moved {
					t.Errorf("%d bytes arrive, %v", n, err)
				}
			})
			n, err := relay.Copy(relay.Metered(near, &out), x.source())
			near.Close()
			received.Wait()
			if err != nil || n != x.moved {
				t.Errorf("%d bytes, %v", n, err)
			}
			check(t, "source", in, x.read, 0)
			check(t, "destination", &out, 0, x.moved)
		})
	}
}

// TestMeteredReadsAndWrites are those of the wrapper itself.
func TestMeteredReadsAndWrites(t *testing.T) {
	t.Parallel()

	var m relay.Meter
	far, near := tcp(t)
	c := relay.Metered(near, &m)
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write([]byte("hi")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	check(t, "wrapper", &m, 2, 5)
	if relay.Metered(nil, &m) != nil {
		t.Error("nothing is wrapped")
	}
	if relay.Metered(near, nil) != near {
		t.Error("a connection is wrapped that nobody counts")
	}
}
