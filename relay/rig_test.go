package relay_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// closing is the tests, and the end of the default relay, whose pipes would be taken for leaked.
type closing struct{ *testing.M }

func (c closing) Run() int {
	code := c.M.Run()
	if err := relay.CloseDefault(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	runHelper()
	leak.Main(closing{m})
}

// patience is how long a test waits for what must happen; nothing depends on it
// but how fast a failure shows.
const patience = 60 * time.Second

func newRelay(t testing.TB, cfg *relay.Config) *relay.Relay {
	t.Helper()
	pipequota.Share(t)
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s := r.Stats()
		if s.Pipes.Leased != 0 || s.Buffers.Live != 0 {
			t.Errorf("still leased: %d pipes, %d buffers", s.Pipes.Leased, s.Buffers.Live)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// halfConn is a connection that can pass on an end of file.
type halfConn interface {
	net.Conn
	CloseWrite() error
}

// A rig is a session between two peers: far A ⇄ near a ⇄ relay ⇄ near b ⇄ far B.
type rig struct {
	t       testing.TB
	A, B    halfConn
	near    [2]near // those of A and B
	session joint
	cancel  func(cause error)
	done    chan struct{}
	result  relay.Result
	err     error
}

// A near calls f with the descriptor of an end that a session has and that has not
// ended; it stays the session's.
type near func(f func(fd int))

// A joint is a session, whichever driver it has.
type joint interface {
	Result() relay.Result
	HalfOpen() bool
	Guarded() [2]bool
	Limits() *relay.Limits
}

// network makes the connections of one side of a rig: far, near.
type network func(testing.TB) (far halfConn, near net.Conn)

func tcp(t testing.TB) (halfConn, net.Conn) {
	c, s := sockets.TCPPair(t)
	return c, s
}

func unixStream(t testing.TB) (halfConn, net.Conn) {
	c, s := sockets.UnixPair(t)
	return c, s
}

// smallTCP is tcp with small kernel buffers, so that a thousand pairs fit.
func smallTCP(t testing.TB) (halfConn, net.Conn) {
	far, near := sockets.TCPPair(t)
	for _, c := range []*net.TCPConn{far, near} {
		if err := c.SetReadBuffer(128 << 10); err != nil {
			t.Fatal(err)
		}
		if err := c.SetWriteBuffer(128 << 10); err != nil {
			t.Fatal(err)
		}
	}
	return far, near
}

func (g *rig) run(ctx context.Context, s *relay.Session) {
	g.result, g.err = s.Run(ctx)
	close(g.done)
}

func (g *rig) wait() (relay.Result, error) {
	g.t.Helper()
	select {
	case <-g.done:
		return g.result, g.err
	case <-time.After(patience):
		g.t.Fatalf("session has not ended: %+v", g.session.Result())
		panic("unreachable")
	}
}

// until waits for a condition of the live result.
func (g *rig) until(what string, cond func(relay.Result) bool) relay.Result {
	g.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if res := g.session.Result(); cond(res) {
			return res
		}
	}
	g.t.Fatalf("not in time: %s; result %+v", what, g.session.Result())
	panic("unreachable")
}

// content returns n bytes that are their own position's witness.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = src.Read(b)
	return b
}

// send writes all of b to c in pieces, then passes on the end.
func send(c halfConn, b []byte, piece int) error {
	for len(b) > 0 {
		n, err := c.Write(b[:min(piece, len(b))])
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		b = b[n:]
	}
	return c.CloseWrite()
}

// receive reads c to its end and returns the hash of what came, and how much.
func receive(c io.Reader) (sum [32]byte, n int64, err error) {
	h := sha256.New()
	n, err = io.Copy(struct{ io.Writer }{h}, struct{ io.Reader }{c})
	return [32]byte(h.Sum(nil)), n, err
}

// exchange sends toB and toA at the same time and checks what arrives.
func (g *rig) exchange(toB, toA []byte, piece int) {
	g.t.Helper()
	var wg sync.WaitGroup
	run := func(what string, f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				g.t.Errorf("%s: %v", what, err)
			}
		})
	}
	run("A sends", func() error { return send(g.A, toB, piece) })
	run("B sends", func() error { return send(g.B, toA, piece) })
	run("B receives", func() error { return expect(g.B, toB) })
	run("A receives", func() error { return expect(g.A, toA) })
	wg.Wait()
}

// expect reads c to its end and compares.
func expect(c io.Reader, want []byte) error {
	sum, n, err := receive(c)
	switch {
	case err != nil:
		return fmt.Errorf("after %d of %d bytes: %w", n, len(want), err)
	case n != int64(len(want)) || sum != sha256.Sum256(want):
		return fmt.Errorf("got %d bytes with another hash, want %d", n, len(want))
	}
	return nil
}

// checkClean fails unless the session ended well, with these byte counts.
func (g *rig) checkClean(aToB, bToA int) relay.Result {
	g.t.Helper()
	res, err := g.wait()
	if err != nil || res.Reason != relay.ReasonEOF {
		g.t.Fatalf("ended by %v, error %v", res.Reason, err)
	}
	for _, f := range []struct {
		flow relay.Flow
		want int
	}{{res.AToB, aToB}, {res.BToA, bToA}} {
		if f.flow.Bytes() != int64(f.want) || f.flow.Lost != 0 || f.flow.Reason != relay.ReasonEOF {
			g.t.Fatalf("flow %+v, want %d bytes, none lost, end passed on", f.flow, f.want)
		}
	}
	return res
}

// runHelper runs this binary as one of the helper processes of the tests, if it
// was started as one.
func runHelper() {
	if name := os.Getenv("RELAY_TEST_HELPER"); name != "" {
		helpers[name]()
		os.Exit(0)
	}
}

var helpers = map[string]func(){}

// pass sends b through a session.
func pass(t *testing.T, from io.Writer, to io.Reader, b []byte) {
	t.Helper()
	written := make(chan error, 1)
	go func() { _, err := from.Write(b); written <- err }()
	if _, err := io.ReadFull(to, make([]byte, len(b))); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}
