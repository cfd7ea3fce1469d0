package relay_test

import (
	"testing"
	"time"
)

// TestMarkLetsTailsThrough: a stream that has proved to be bulk raises its mark, and goes
// on with a few bytes and no end of file. They are through when the bound has passed by
// the test's clock, and a guard that finds nothing more rests.
func TestMarkLetsTailsThrough(t *testing.T) {
	t.Parallel()
	eachDriver(t, testMarkLetsTailsThrough)
}

func testMarkLetsTailsThrough(t *testing.T, d *driving) {
	s := startTailing(t, d, time.Millisecond)
	defer s.end()
	w := s.ways[0]
	for end := time.Now().Add(patience / 2); !s.raised(w); {
		if time.Now().After(end) {
			t.Fatal("no mark was ever raised")
		}
		s.send(w, 4<<20)
		s.wait(w, "bulk to pass", func() bool { return w.through() || s.raised(w) })
	}
	if !w.through() {
		s.passes(w, s.clock.now())
	}
	since := s.clock.now()
	s.send(w, 1)
	s.passes(w, since)
	s.walk(4*s.bound(), never)
	if n := d.raised(t, s.r); n != 0 {
		t.Errorf("the guard still looks at %d directions", n)
	}
	s.send(s.ways[1], 1)
	s.wait(s.ways[1], "the answer", s.ways[1].through)
	for _, w := range s.ways {
		if err := w.from.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	s.checkClean(int(w.sent), 1)
}
