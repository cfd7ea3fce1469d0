package top_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/top"
)

// TestViews compares each tab, at the usual size and on a wide terminal, with the kept views.
func TestViews(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {160, 40}} {
		for i, tab := range []string{"endpoints", "listeners", "upstreams", "sessions", "loops", "problems"} {
			s := newScreen(t, size.width, size.height, status(0), status(2))
			if cmd := s.press(fmt.Sprint(i + 1)); cmd != nil {
				s.send(cmd()) // the verdicts
			}
			s.kept(fmt.Sprintf("%s-%dx%d", tab, size.width, size.height))
		}
	}
}

// TestFirstLook shows everything but rates, which one look does not have.
func TestFirstLook(t *testing.T) {
	s := newScreen(t, 80, 24)
	if got := s.text(); !strings.Contains(got, "waiting for the process") {
		t.Errorf("before the first look:\n%s", got)
	}
	s = newScreen(t, 80, 24, status(0))
	s.kept("first-look")
}

// TestSizes: no line is wider than the terminal, there are no more lines than it has, and the keys stay.
func TestSizes(t *testing.T) {
	for width := 10; width <= 200; width += 7 {
		for height := 3; height <= 60; height++ {
			s := newScreen(t, width, height, crowd(50, 0), crowd(50, 2))
			for tab := range 6 {
				s.press(fmt.Sprint(tab + 1))
				lines := strings.Split(s.text(), "\n")
				if len(lines) > height {
					t.Fatalf("%dx%d: %d lines:\n%s", width, height, len(lines), s.text())
				}
				for _, line := range lines {
					if ansi.StringWidth(line) > width {
						t.Fatalf("%dx%d: a line has %d columns: %q", width, height, ansi.StringWidth(line), line)
					}
				}
				if last := lines[len(lines)-1]; !strings.HasPrefix(last, "1-6 tab"[:min(7, width-1)]) {
					t.Fatalf("%dx%d: the last line is %q", width, height, last)
				}
			}
		}
	}
}

// TestAnotherProcess: counters of a process are not subtracted from those of its successor.
func TestAnotherProcess(t *testing.T) {
	successor := status(0)
	successor.PID, successor.Started = 4712, start
	s := newScreen(t, 80, 24, status(500), successor)
	if row := s.row("three "); !strings.Contains(row, " -  ") || strings.Contains(s.text(), "-1") {
		t.Errorf("%s", s.text())
	}
}

// TestEndpointsWithoutClientsHaveACause: an endpoint that gets no clients by its weight, or by hand, says so.
func TestEndpointsWithoutClientsHaveACause(t *testing.T) {
	now := status(0)
	list := now.Upstreams[0].Endpoints
	for i, by := range [][]string{{"weight 0 by uid=7 at 2026-01-02 10:00:00"}, nil} {
		list[i] = admin.Endpoint{Name: []string{"by-hand", "in-the-file"}[i], State: admin.Up, ByHand: by}
	}
	s := newScreen(t, 160, 40, now)
	for name, want := range map[string]string{"by-hand": "weight 0 by uid=7 at", "in-the-file": "weight 0"} {
		if row := s.row(name); !strings.Contains(row, want) {
			t.Errorf("%q has no %q", row, want)
		}
	}
}

// TestRatesAreDifferences: 2 seconds lie between the looks.
func TestRatesAreDifferences(t *testing.T) {
	s := newScreen(t, 160, 40, status(0), status(2))
	for _, want := range []string{"clients 42/10000  new 50.0/s  refused 2.0/s  in 1.00 MB/s  out 25.0 MB/s"} {
		if !strings.Contains(s.text(), want) {
			t.Errorf("no %q in\n%s", want, s.text())
		}
	}
	if got, want := strings.Fields(s.row(" one ")), "app one up 30/100 30.0 0 600 kB 15.0 MB 400µs 20 % 1"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSlowEndpointIsSeen: the endpoint that answers slowly, or that sessions wait for, is the first by either column.
func TestSlowEndpointIsSeen(t *testing.T) {
	s := newScreen(t, 160, 40, status(0), status(2))
	for _, column := range []string{"answer↓", "waits↓"} {
		for range 12 {
			if strings.Contains(s.text(), column) {
				break
			}
			s.press("s")
		}
		if got := s.order("one", "two", "three"); got != "three one two" || !strings.Contains(s.text(), column) {
			t.Errorf("by %s: %s\n%s", column, got, s.text())
		}
	}
	if row := s.row("three "); !strings.Contains(row, " 300ms ") || !strings.Contains(row, " 90 % ") {
		t.Errorf("%s", row)
	}
	if row := newScreen(t, 80, 24, status(0), status(2)).row("three "); !strings.Contains(row, " 300ms ") {
		t.Errorf("at 80 columns: %s", row)
	}
	still := status(2)
	if row := newScreen(t, 160, 40, status(2), still).row("one "); !strings.Contains(row, " 340µs ") || !strings.Contains(row, " 11 % ") {
		t.Errorf("without a new answer it is not the mean of all: %s", row)
	}
	still.Upstreams[0].Endpoints[0].State = admin.Down
	if row := newScreen(t, 160, 40, status(2), still).row("one "); strings.Contains(row, " %") {
		t.Errorf("an endpoint that is down, and has no sessions, has an old share: %s", row)
	}
}

// TestNothingFlows: the line about the process has no columns, so a rate of zero has its unit.
func TestNothingFlows(t *testing.T) {
	still := status(2)
	if text := newScreen(t, 160, 40, status(2), still).text(); !strings.Contains(text, "  in 0 B/s  out 0 B/s  loop turn p99 ") {
		t.Error(text)
	}
}

// TestByHand: the cause has the changes by hand, and a weight of 0 is one.
func TestByHand(t *testing.T) {
	st := status(2)
	e := st.Upstreams[0].Endpoints
	e[0].Weight = 0
	e[1].ByHand = []string{"weight 5 by uid=7 at 2026-01-02 09:00:00"}
	s := newScreen(t, 260, 40, status(0), st)
	for name, want := range map[string]string{"one ": "weight 0: it gets no clients", "two ": "long text looks like here; weight 5 by uid=7", "three ": "drain by uid=1000 at"} {
		if row := s.row(name); !strings.Contains(row, want) {
			t.Errorf("%s: no %q", row, want)
		}
	}
	e[0].ByHand = []string{"weight 0 by uid=7 at 2026-01-02 09:00:00"}
	if row := newScreen(t, 200, 40, status(0), st).row("one "); !strings.Contains(row, " weight 0 by uid=7 at") {
		t.Errorf("%s", row)
	}
}

// TestBackup: a backup is called so, in whichever state it is.
func TestBackup(t *testing.T) {
	st := status(2)
	st.Upstreams[0].Endpoints[2].Backup = true
	if row := newScreen(t, 200, 40, status(0), st).row("three "); !strings.Contains(row, " draining, backup ") {
		t.Errorf("%s", row)
	}
}

// TestNoAnswer keeps the last look, and shows that it is old.
func TestNoAnswer(t *testing.T) {
	s := newScreen(t, 120, 24, status(0), status(2))
	if cmd := s.send(top.Looked(top.Look{}, errGone)); cmd == nil {
		t.Error("it does not look again")
	}
	if !strings.Contains(s.text(), "no answer since 10:00:02: unix:/run/penstock") || s.row(" one ") == "" {
		t.Errorf("%s", s.text())
	}
	s.send(top.Looked(top.Look{Status: status(4), At: start}, nil))
	if strings.Contains(s.text(), "no answer") {
		t.Errorf("%s", s.text())
	}
}

// hostileTexts are texts that a terminal must not obey.
var hostileTexts = []string{"\x1b[2J", "\x1b]0;owned\a", "a\nb", "\r", "\u009b31m", "\x9b", "\u202egnp", "\u2028", "\t", "\x00\x7f", "日本", "\u200b"}

// TestHostileTexts: texts of others do not reach the terminal as they are. The view has styles of its own, which
// are taken out first: they are SGR alone.
func TestHostileTexts(t *testing.T) {
	for _, text := range hostileTexts {
		s := status(2)
		s.Problems[0].Text += text
		s.Listeners[0].Name, s.Listeners[0].Addresses[0], s.Listeners[1].PausedAt = text, text, text
		for i := range s.Upstreams {
			u := &s.Upstreams[i]
			u.Name, u.Balance, u.BreakerWhy = u.Name+text, text, text
			for j := range u.Endpoints {
				e := &u.Endpoints[j]
				e.Name, e.Why, e.State, e.Breaker = text, text, admin.State(text), text
			}
		}
		y := verdicts()
		y.Advice, y.Shares = text, map[string]float64{text: 1}
		for i := range y.Sessions {
			one := &y.Sessions[i]
			one.Client, one.Name, one.Verdict, one.Why = text, text, text, text
		}
		screen := newScreen(t, 80, 24, s, s)
		screen.send(top.Judged(y))
		screen.send(top.Looked(top.Look{}, fmt.Errorf("bad: %s", text)))
		for tab := range 6 {
			screen.press(fmt.Sprint(tab + 1))
			view := sgr.ReplaceAllString(screen.model.View().Content, "")
			if bad := strings.ContainsFunc(view, func(r rune) bool {
				return r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x202e || r == 0x2028 || r == 0xfffd)
			}); bad {
				t.Errorf("%q in tab %d: %q", text, tab+1, view)
			}
			if n := strings.Count(view, "\n"); n != 23 {
				t.Errorf("%q in tab %d: %d lines", text, tab+1, n+1)
			}
		}
	}
}

// TestOnce writes a picture without styles: rates between two looks, with the verdicts on the time between.
func TestOnce(t *testing.T) {
	p := &process{statuses: []admin.Status{status(0), status(2)}, why: verdicts()}
	var out strings.Builder
	if err := top.Once(t.Context(), top.Config{Source: p, Interval: 3 * time.Second, Output: &out}); err != nil {
		t.Fatal(err)
	}
	if len(p.asked) != 1 || p.asked[0] != (admin.WhyQuery{For: 3 * time.Second}) {
		t.Errorf("asked for %v", p.asked)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("styles in %q", out.String())
	}
	for _, want := range []string{
		`^pid 4711, serving, up [0-9hdms]+, generation 3 for [0-9hdms]+\n`, `\nclients 42/10000  new [0-9.]+[kM]?/s`, `\noutage +[0-9]+d[0-9]+h +upstream shop`, `\nlistener +state +active`, `\nweb +serving +30/5000`,
		`\napp +1/3 `, `\napp +two +ejected .* 5 failures in a row.*looks like here\n`, `\n +loop +active`, `\ntime of 30 sessions: client 75 %, endpoint 20 %, idle 5 %\n`, `\n192\.0\.2\.7:51234 +one \(10\.0\.0\.1:80\) +client +12\.3s +300 B +1\.20 MB +its window was closed for 97 %`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if err := top.Once(t.Context(), top.Config{Source: p, Output: &out}); !errors.Is(err, errGone) {
		t.Errorf("without a process: %v", err)
	}
}
