package relay_test

import (
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// TestMarkLetsTailsThrough: a stream that has raised its mark goes on with a few
// bytes and no end of file. They would wait for ever if it were not for the guard,
// which the clock of the test keeps asleep until it is time.
func TestMarkLetsTailsThrough(t *testing.T) { eachDriver(t, testMarkLetsTailsThrough) }

func testMarkLetsTailsThrough(t *testing.T, d *driving) {
	r, clock := d.clockedRelay(t, relay.Config{})
	g := d.newRig(t, r, tcp, tcp)
	received := make(chan int, 1)
	go func() {
		n, _ := io.Copy(io.Discard, g.B)
		received <- int(n)
	}()
	piece, sent := make([]byte, 1<<20), int64(0)
	for end := time.Now().Add(patience); d.raised(t, r) == 0; {
		if time.Now().After(end) {
			t.Fatal("no mark was ever raised")
		}
		n, err := g.A.Write(piece)
		sent += int64(n)
		if err != nil {
			t.Fatal(err)
		}
	}
	n, err := g.A.Write(piece[:1])
	sent += int64(n)
	if err != nil {
		t.Fatal(err)
	}
	g.until("the tail to pass", func(res relay.Result) bool {
		clock.advance(time.Millisecond)
		return res.AToB.Bytes() == sent
	})
	g.until("the guard to rest", func(relay.Result) bool {
		clock.advance(time.Millisecond)
		return d.raised(t, r) == 0
	})
	if _, err := g.B.Write(piece[:1]); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(g.A, piece[:1]); err != nil {
		t.Fatal(err)
	}
	if err := g.A.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := g.B.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if res, err := g.wait(); err != nil || res.AToB.Bytes() != sent || int64(<-received) != sent {
		t.Errorf("%+v, %v; sent %d", res, err, sent)
	}
}

// TestMarkEndsAtOnce: an end of file wakes a direction whose mark is raised; the
// guard is never let run.
func TestMarkEndsAtOnce(t *testing.T) { eachDriver(t, testMarkEndsAtOnce) }

func testMarkEndsAtOnce(t *testing.T, d *driving) {
	r, _ := d.clockedRelay(t, relay.Config{})
	g := d.newRig(t, r, tcp, tcp)
	received := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, g.B)
		_ = g.B.CloseWrite()
		received <- n
	}()
	piece, sent := make([]byte, 1<<20), int64(0)
	for end := time.Now().Add(patience); d.raised(t, r) == 0; sent += int64(len(piece)) {
		if time.Now().After(end) {
			t.Fatal("no mark was ever raised")
		}
		if _, err := g.A.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.A.Write(piece[:77]); err != nil {
		t.Fatal(err)
	}
	if err := g.A.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n := <-received; n != sent+77 {
		t.Errorf("received %d of %d bytes", n, sent+77)
	}
	if _, err := g.wait(); err != nil {
		t.Error(err)
	}
}
