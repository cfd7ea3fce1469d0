package relay_test

import (
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// quietLeast is for how long no byte has moved in a session on goroutines that is quiet.
const quietLeast = time.Second

// quiet returns Quiet of the session of either driver.
func (g *rig) quiet() (is bool) {
	if s, ok := g.session.(*loopSession); ok {
		s.on.do(func() { is = s.driven.Quiet() })
		return is
	}
	return g.session.(*relay.Session).Quiet(quietLeast)
}

// TestQuiet: a session is quiet when no byte is on its way, and no question is open.
func TestQuiet(t *testing.T) {
	t.Parallel()

	eachDriver(t, func(t *testing.T, d *driving) {
		for name, of := range map[string]network{"tcp": tcp, "unix": unixStream} {
			t.Run(name, func(t *testing.T) { testQuiet(t, d, of) })
		}
	})
}

func testQuiet(t *testing.T, d *driving, of network) {
	r, c := d.clockedRelay(t, relay.Config{Engine: relay.EngineCopy, LegsAfter: time.Hour})
	g := d.newRig(t, r, of, of)
	begun(c, g)
	expect := func(want bool, when string) {
		t.Helper()
		for begin := time.Now(); g.quiet() != want; time.Sleep(time.Millisecond) {
			c.advance(2 * quietLeast) // also past the move that is noted last
			if time.Since(begin) > patience {
				t.Fatalf("%s: quiet is %v", when, !want)
			}
		}
	}
	expect(true, "nothing was sent")
	g.ask()
	c.advance(2 * quietLeast)
	if g.quiet() {
		t.Error("a session with an open question is quiet")
	}
	for range 70 { // however long the question is
		g.ask()
	}
	c.advance(2 * quietLeast)
	if g.quiet() {
		t.Error("a session with a long question is quiet")
	}
	if err := ping(g.B, g.A, 2); err != nil {
		t.Fatal(err)
	}
	expect(true, "the question is answered")

	// A client that does not read leaves bytes on their way, whoever holds them.
	stop := make(chan int64)
	go func() {
		n, chunk := int64(0), make([]byte, 64<<10)
		_ = g.B.SetWriteDeadline(time.Now().Add(time.Second))
		for {
			m, err := g.B.Write(chunk)
			n += int64(m)
			if err != nil {
				stop <- n
				return
			}
		}
	}()
	sent := <-stop
	c.advance(2 * quietLeast)
	if g.quiet() {
		t.Error("a session with bytes on their way is quiet")
	}
	if _, err := io.CopyN(io.Discard, g.A, sent); err != nil {
		t.Fatal(err)
	}
	expect(true, "the bytes have come")
	_ = g.A.CloseWrite()
	_ = g.B.CloseWrite()
	g.wait()
	if g.quiet() {
		t.Error("a session that has ended is quiet")
	}
}
