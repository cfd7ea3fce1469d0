package million

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// measured runs the measurement with these numbers of sessions.
func measured(t *testing.T, counts ...int) *Report {
	t.Helper()
	g := process.NewGroup()
	defer g.Close()
	out, doing := new(Report), 0
	s := &Setup{Group: g, Part: spec, Counts: counts, Watch: func(Form, int, string) { doing++ }}
	if err := Measure(t.Context(), s, out); err != nil {
		t.Fatal(err)
	}
	if doing == 0 {
		t.Error("no progress was reported")
	}
	return out
}

func TestMeasure(t *testing.T) {
	out := measured(t, 130, 2000) // the first is not a round number
	if len(out.Rows) != 3 {
		t.Fatalf("%d rows", len(out.Rows))
	}
	for i, want := range []Row{{Form: Loop, Sessions: 130}, {Form: Loop, Sessions: 2000}, {Form: Goroutines, Sessions: 2000}} {
		r := out.Rows[i]
		if r.Form != want.Form || r.Sessions != want.Sessions || r.Figures == nil || r.Missing != "" {
			t.Fatalf("%+v", r)
		}
		for j, x := range r.Figures.numbers() {
			if r.Form == Loop && !(*x > 0) && x != &r.Figures.RssAnonBytes && x != &r.Figures.Collect.CPU {
				t.Errorf("%d sessions: figure %d is %v", r.Sessions, j, *x)
			}
		}
		if m := r.Figures.Message; m.Messages < fewMessages || !(m.P50 <= m.P99 && m.HotP50 <= m.HotP99) {
			t.Errorf("%+v", m)
		}
		if c := r.Figures.Collect; c.Times != collectTimes || !(c.Wall > 0 && c.Pause > 0 && c.UsualPause <= c.Pause && c.MessageP99 <= c.Longest) {
			t.Errorf("%+v", c)
		}
	}
	if f := out.Rows[2].Figures; f.Wheel.Arm.Known() || f.Stuck.Stash.Known() {
		t.Errorf("goroutines have neither wheel nor arena: %+v", f)
	}
	if text, err := json.Marshal(out); err != nil || !strings.Contains(string(text), `"arm_seconds":null`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestSessionMemory: an idle session takes its conn and two slots of the table, whatever the
// number of sessions. Its memory does not grow with its traffic.
func TestSessionMemory(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("the bound is for 64 bits")
	}
	var heap []report.Number
	for _, n := range []int{2000, 20_000} {
		c, err := newCrowd(n)
		if err != nil {
			t.Fatal(err)
		}
		defer c.abandon()
		f := newFigures()
		if err := f.begin(n, func() error { return c.fill(begunFrom, begunTo) }); err != nil {
			t.Fatal(err)
		}
		if f.HeapBytes > 450 || f.HeapBytes < 296 {
			t.Errorf("%d sessions: %v bytes of the heap each", n, f.HeapBytes)
		}
		if c.driver.Sessions() != n {
			t.Errorf("%d sessions of %d", c.driver.Sessions(), n)
		}
		heap = append(heap, f.HeapBytes)
	}
	if heap[1] > heap[0]*1.1 {
		t.Errorf("a session takes %v bytes of the heap among 2,000 and %v among 20,000", heap[0], heap[1])
	}
}

// abandon closes the descriptors, and leaves the sessions as they are.
func (c *crowd) abandon() {
	c.links.close()
	_ = c.loop.Close()
}

// TestSilentEnds: the idle timeout ends the silent session at its time, and no other session.
func TestSilentEnds(t *testing.T) {
	const n = 100
	c, err := newCrowd(n)
	if err != nil {
		t.Fatal(err)
	}
	defer c.abandon()
	k, err := c.silent()
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	if err := c.fill(begunFrom, begunTo); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c.clock.between(talkFrom, talkTo, i, n)
		if _, err := c.message(i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.idle(n); err != nil {
		t.Error(err)
	}
	if got := c.driver.Sessions(); got != n {
		t.Errorf("%d sessions of %d are left", got, n)
	}
}

// TestNobodyEnds: an error is reported if no session ended.
func TestNobodyEnds(t *testing.T) {
	c, err := newCrowd(1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.abandon()
	if _, err := c.idle(1); err == nil {
		t.Error("no error")
	}
	if err := c.out(1); err == nil {
		t.Error("no session has a slot, and no error")
	}
}

// TestOtherMessage: a message of another session is an error.
func TestOtherMessage(t *testing.T) {
	c, err := newCrowd(2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.abandon()
	if err := c.fill(begunFrom, begunTo); err != nil {
		t.Fatal(err)
	}
	if _, err := c.message(1); err != nil {
		t.Fatal(err)
	}
	k := c.links.of(0)
	if err := send(k.nearB, c.numbered(1, slotSize)); err != nil {
		t.Fatal(err)
	}
	c.numbered(0, slotSize)
	if err := c.expect(k, slotSize); !errors.Is(err, errOther) {
		t.Errorf("got %v", err)
	}
}

func TestNoMemory(t *testing.T) {
	out := new(Report)
	s := &Setup{Part: spec, Counts: []int{1 << 30}} // nothing to start it with
	if err := s.row(t.Context(), Loop, 1<<30, out); err != nil {
		t.Fatal(err)
	}
	if len(out.Rows) != 1 || out.Rows[0].Figures != nil || !strings.Contains(out.Rows[0].Missing, " of memory, and ") {
		t.Errorf("%+v", out.Rows)
	}
}

func TestInterrupted(t *testing.T) {
	g := process.NewGroup()
	defer g.Close()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &Setup{Group: g, Part: spec, Counts: []int{1000, 1_000_000}, Watch: func(_ Form, n int, _ string) {
		if n > 1000 {
			cancel(enough)
		}
	}}
	out := new(Report)
	if err := Measure(ctx, s, out); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	if len(out.Rows) != 1 || out.Rows[0].Figures == nil {
		t.Errorf("%+v", out.Rows)
	}
}

func TestFailureIsTold(t *testing.T) {
	g := process.NewGroup()
	defer g.Close()
	s := &Setup{Group: g, Part: spec, Counts: []int{1}, Watch: func(Form, int, string) {}}
	if err := s.row(t.Context(), "threads", 1, new(Report)); err == nil || !strings.Contains(err.Error(), `no form "threads"`) {
		t.Errorf("got %v", err)
	}
}

func TestCounts(t *testing.T) {
	for most, want := range map[int]string{1: "[1]", 1000: "[1000]", 20_000: "[1000,10000,20000]", 1_000_000: "[1000,10000,100000,1000000]"} {
		if got, _ := json.Marshal(Counts(most)); string(got) != want {
			t.Errorf("%d: %s, want %s", most, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	if times(nil).at(0.5).Known() {
		t.Error("an empty list has a median")
	}
	if got := (times{3 * time.Second, time.Second, 2 * time.Second}).at(0.5); got != 2 {
		t.Errorf("%v", got)
	}
}
