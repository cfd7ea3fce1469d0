package top_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/top"
)

// sgr are styles (ECMA-48, SGR).
var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// names returns the first cells of the rows that are shown, by their order.
func (s *screen) order(names ...string) string {
	var order []string
	for line := range strings.Lines(s.text()) {
		for _, name := range names {
			if strings.Contains(line, " "+name+" ") {
				order = append(order, name)
			}
		}
	}
	return strings.Join(order, " ")
}

func TestSorting(t *testing.T) {
	s := newScreen(t, 160, 40, status(0), status(2))
	names := []string{"one", "two", "three", "10.0.1.1:80"}
	// The least healthy are first, and then those with the most traffic.
	if got := s.order(names...); got != "two 10.0.1.1:80 three one" {
		t.Errorf("unsorted: %s", got)
	}
	s.press("s", "s") // by the endpoint's name
	if got := s.order(names...); got != "10.0.1.1:80 one three two" || !strings.Contains(s.text(), "endpoint↓") {
		t.Errorf("by name: %s\n%s", got, s.text())
	}
	s.press("r")
	if got := s.order(names...); got != "two three one 10.0.1.1:80" || !strings.Contains(s.text(), "endpoint↑") {
		t.Errorf("by name, reversed: %s", got)
	}
	s.press("s", "s") // by active sessions
	if got := s.order(names...); got != "one three two 10.0.1.1:80" {
		t.Errorf("by active: %s", got)
	}
	for range 9 { // behind the last column is the order of the table
		s.press("s")
	}
	if got := s.order(names...); got != "two 10.0.1.1:80 three one" {
		t.Errorf("unsorted again: %s", got)
	}
	s.press("S")
	if !strings.Contains(s.text(), "why↓") {
		t.Errorf("by the last column:\n%s", s.text())
	}
}

func TestFilter(t *testing.T) {
	s := newScreen(t, 160, 40, status(0), status(2))
	s.press("/", "R", "E", "q", "backspace")
	if !strings.Contains(s.text(), "filter: RE_") {
		t.Fatalf("%s", s.text())
	}
	// In any column, in whatever case, and as it is typed.
	if got := s.order("one", "two", "three", "10.0.1.1:80"); got != "two 10.0.1.1:80 three" {
		t.Errorf("%s\n%s", got, s.text())
	}
	s.press("enter", "s")
	if !strings.Contains(s.text(), "filter: RE ") {
		t.Errorf("the filter is not kept:\n%s", s.text())
	}
	s.send(top.Looked(top.Look{Status: status(4), At: start.Add(4 * time.Second)}, nil))
	if got := s.order("one", "two"); got != "two" {
		t.Errorf("after another look: %s", got)
	}
	s.press("esc")
	if s.row(" one ") == "" {
		t.Errorf("the filter is not cleared:\n%s", s.text())
	}
	s.press("/", "x", "x", "enter")
	if !strings.Contains(s.text(), "no row contains xx") {
		t.Errorf("%s", s.text())
	}
}

// TestPause: while it pauses nothing changes, and the process is not asked.
func TestPause(t *testing.T) {
	s := newScreen(t, 120, 24, status(0), status(2))
	s.press("p")
	before := s.text()
	if !strings.Contains(before, "paused  10:00:02") {
		t.Errorf("%s", before)
	}
	s.send(top.Looked(top.Look{Status: status(9), At: start.Add(9 * time.Second)}, nil))
	if s.text() != before {
		t.Errorf("it has changed:\n%s", s.text())
	}
	s.press("space")
	s.send(top.Looked(top.Look{Status: status(12), At: start.Add(12 * time.Second)}, nil))
	if strings.Contains(s.text(), "paused") || !strings.Contains(s.text(), "10:00:12") || !strings.Contains(s.text(), "new 50.0/s") {
		t.Errorf("%s", s.text())
	}
}

// TestLooksWhenDue: a look that is due asks for a status, but not while it pauses.
func TestLooksWhenDue(t *testing.T) {
	p := &process{statuses: []admin.Status{status(0)}}
	m := top.NewModel(t.Context(), top.Config{Source: p, Interval: time.Millisecond})
	s := &screen{t, m}
	s.press("p")
	if msg := s.send(top.Due())(); msg != top.Due() || len(p.statuses) != 1 {
		t.Errorf("while it pauses it asks, or does not go on: %T", msg)
	}
	s.press("p")
	s.send(s.send(top.Due())())
	if len(p.statuses) != 0 || !strings.Contains(s.text(), "pid 4711") {
		t.Errorf("%d statuses are left:\n%s", len(p.statuses), s.text())
	}
}

// TestVerdictsAreAskedForWhenSeen: only while their tab is shown, and one request at a time.
func TestVerdictsAreAskedForWhenSeen(t *testing.T) {
	s := newScreen(t, 80, 24, status(0), status(2))
	if s.press("5") != nil {
		t.Error("another tab asks")
	}
	cmd := s.press("left")
	if cmd == nil {
		t.Fatal("the tab does not ask")
	}
	if s.press("right", "left") != nil {
		t.Error("it asks again before the answer")
	}
	if s.send(cmd()) == nil {
		t.Error("it does not go on")
	}
	s.press("1")
	if s.send(top.Judged(verdicts())) != nil {
		t.Error("it goes on though another tab is shown")
	}
}

func TestQuit(t *testing.T) {
	for _, keys := range [][]string{{"q"}, {"ctrl+c"}, {"/", "ctrl+c"}} {
		if cmd := newScreen(t, 80, 24, status(0)).press(keys...); cmd == nil || cmd() != (tea.QuitMsg{}) {
			t.Errorf("%v does not quit", keys)
		}
	}
	if cmd := newScreen(t, 80, 24, status(0)).press("/", "q"); cmd != nil {
		t.Error("a q in the filter quits")
	}
}

// TestScroll goes through 10,000 endpoints.
func TestScroll(t *testing.T) {
	s := newScreen(t, 80, 24, crowd(10_000, 0), crowd(10_000, 2))
	if !strings.Contains(s.text(), "1 of 10001") || s.row("10.0.1.1:80") == "" {
		t.Fatalf("%s", s.text())
	}
	s.press("end")
	if !strings.Contains(s.text(), "10001 of 10001") || s.row("e00000") == "" {
		t.Errorf("the end:\n%s", s.text())
	}
	s.press("up", "pgup")
	if s.row("e00000") != "" || !strings.Contains(s.text(), " of 10001") {
		t.Errorf("a page up:\n%s", s.text())
	}
	s.press("home", "down", "pgdown", "down")
	here := s.row(" of 10001")
	s.send(top.Looked(top.Look{Status: crowd(10_000, 4), At: start.Add(4 * time.Second)}, nil))
	if s.row(" of 10001") != here {
		t.Errorf("another look scrolls from %q to %q", here, s.row(" of 10001"))
	}
	s.press("/", "e", "0", "9", "9", "9", "9", "enter")
	if !strings.Contains(s.text(), "1 of 1") {
		t.Errorf("fewer rows:\n%s", s.text())
	}
}

// TestEnvironment: any value of NO_COLOR switches colours off.
func TestEnvironment(t *testing.T) {
	env := func(list map[string]string) string {
		return strings.Join(top.Environment(func(name string) string { return list[name] }), " ")
	}
	if got := env(map[string]string{"TERM": "xterm-256color", "NO_COLOR": "yes", "SECRET": "x"}); got != "TERM=xterm-256color NO_COLOR=1" {
		t.Errorf("%s", got)
	}
	if got := env(map[string]string{"TERM": "xterm", "NO_COLOR": ""}); got != "TERM=xterm" {
		t.Errorf("%s", got)
	}
}

// TestSlowProcess: a process that takes long to answer is asked less often.
func TestSlowProcess(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: time.Second, 300 * time.Millisecond: time.Second, 2 * time.Second: 6 * time.Second} {
		if got := top.Pause(took, time.Second); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
