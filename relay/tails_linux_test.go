package relay_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// markBound is how long the tail of a stream waits at most: [relay.Config.TailDelay] by
// default. The tests allow ten times that, and a scheduler that is busy elsewhere: of
// some tries one has to be in time. A tail that the mark holds back would be late in
// every one, or never come.
const (
	markBound = time.Millisecond
	tries     = 8
)

// provenRig is a session on a loop of which both directions have proved to be bulk:
// from now on a mark is raised whenever a source runs dry.
func provenRig(t *testing.T) (*driving, *relay.Relay, *rig) {
	t.Helper()
	d := ofLoop()
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	g := d.newRig(t, r, tcp, tcp)
	piece := make([]byte, 4<<20)
	for end := time.Now().Add(patience); !g.session.(*loopSession).prove(); {
		if time.Now().After(end) {
			t.Fatal("no flow was ever proved to be bulk")
		}
		for _, way := range [][2]halfConn{{g.A, g.B}, {g.B, g.A}} {
			go func() { _, _ = way[0].Write(piece) }() // and then the source is dry
			if _, err := io.ReadFull(way[1], make([]byte, len(piece))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d, r, g
}

func (s *loopSession) prove() (proven bool) {
	s.on.do(func() { proven = s.driven.Prove() })
	return proven
}

// TestTails: request and response of every size, with and without a pause in the
// middle, over a connection that stays open and whose marks are raised. Each sender
// stops short of its mark for ever.
func TestTails(t *testing.T) {
	d, r, g := provenRig(t)
	sizes := []int{1 << 20}
	for n := 1; n < 1<<20; n *= 2 {
		sizes = append(sizes, n, n+n/2, 2*n-1)
	}
	raised := 0
	for _, n := range sizes {
		for _, paused := range []bool{false, true} {
			best := time.Hour
			for try := 0; try < tries && best > 10*markBound; try++ {
				for _, way := range [][2]halfConn{{g.A, g.B}, {g.B, g.A}} {
					best = min(best, tail(t, way[0], way[1], n, paused))
					raised += d.raised(t, r)
				}
			}
			if best > 10*markBound {
				t.Errorf("%d bytes, paused %v: the last came %v late at best", n, paused, best)
			}
		}
	}
	if raised == 0 {
		t.Error("no mark was raised meanwhile")
	}
}

// tail sends n bytes and returns how long after the last was sent all had come.
func tail(t *testing.T, from, to halfConn, n int, paused bool) time.Duration {
	t.Helper()
	want := filler()[:n]
	sent := make(chan time.Time, 1)
	go func() {
		rest := want
		if paused && n > 1 {
			_, _ = from.Write(rest[:n/2])
			time.Sleep(3 * markBound)
			rest = rest[n/2:]
		}
		_, _ = from.Write(rest)
		sent <- time.Now()
	}()
	got := make([]byte, n)
	if _, err := io.ReadFull(to, got); err != nil {
		t.Fatalf("%d bytes: %v", n, err)
	}
	took := time.Since(<-sent)
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes: other ones came", n)
	}
	return took
}

// TestTailEnds: an end of file below the mark.
func TestTailEnds(t *testing.T) {
	for _, n := range []int{0, 1, 77, 100_000} {
		d, r, g := provenRig(t)
		if err := ping(g.A, g.B, 1); err != nil { // a source that has just run dry
			t.Fatal(err)
		}
		if _, err := g.A.Write(filler()[:n]); err != nil {
			t.Fatal(err)
		}
		_ = g.A.CloseWrite()
		if err := expect(g.B, filler()[:n]); err != nil {
			t.Fatal(err)
		}
		_ = g.B.CloseWrite()
		if res, err := g.wait(); err != nil || res.Reason != relay.ReasonEOF || res.AToB.Lost+res.BToA.Lost != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		g.until("the guard to rest", func(relay.Result) bool { return d.raised(t, r) == 0 })
	}
}

// TestTailReset: a reset below the mark.
func TestTailReset(t *testing.T) {
	_, _, g := provenRig(t)
	if err := ping(g.A, g.B, 1); err != nil {
		t.Fatal(err)
	}
	abort(t, g.A)
	if res, err := g.wait(); err == nil || res.Reason != relay.ReasonReset {
		t.Fatalf("%+v, %v", res, err)
	}
}
