package top_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/top"
)

var update = flag.Bool("update", false, "write the kept views anew")

var start = time.Date(2026, 1, 2, 10, 0, 0, 0, time.Local)

func bytes(in, out int64) admin.Bytes {
	return admin.Bytes{ClientToEndpoint: admin.ByEngine{Copied: in}, EndpointToClient: admin.ByEngine{Spliced: out}}
}

// status is that of a process after so many seconds: each counter grows at a rate of its own.
func status(seconds int64) admin.Status {
	n := seconds
	return admin.Status{
		PID: 4711, State: admin.Serving, Generation: 3, Started: start.Add(-12 * time.Minute), GenerationSince: start.Add(-5 * time.Minute),
		Problems: []admin.Problem{
			{Severity: admin.Outage, Upstream: "shop", Since: start.Add(-90 * time.Second), Text: "upstream shop has no usable endpoint"},
			{Severity: admin.Warning, Listener: "web", Text: "listener web is at its limit"},
			{Severity: admin.Warning, Text: "generation 3 waits"},
			{Severity: admin.Warning, Text: "a certificate ends in 3 days"},
		},
		Summary: admin.Summary{
			Connections: admin.Connections{Accepted: 1000 + 50*n, Active: 42, Most: 10_000, Refused: 7 + 2*n},
			Bytes:       bytes(1_000_000*n, 25_000_000*n),
			Loops: []admin.Loop{
				{LoopCounts: tally.LoopCounts{Active: 20, Accepted: 500 + 25*n, LagMaxUs: 1893, LongTurns: 3, TimerLateMaxUs: 212}, Turns: 10_000 + 1000*n, Lag: []int64{0, 0, 0, 10_000 + 995*n, 0, 0, 5 * n, 0, 0, 0, 0, 3}, TimerLate: []int64{0, 0, 0, 0, 0, 0, 0, 0, 7 * n}},
				{Index: 1, LoopCounts: tally.LoopCounts{Active: 22, Accepted: 500 + 25*n, LagMaxUs: 5120, LongTurns: 9 + n}, Turns: 9000 + 900*n, Lag: []int64{0, 0, 0, 9000 + 899*n, 0, 0, 0, 0, 0, 0, 0, 0, 9 + n}},
			},
		},
		Listeners: []admin.Listener{
			{Name: "web", State: admin.Serving, Addresses: []string{"127.0.0.1:443"}, Connections: admin.Connections{Accepted: 900 + 40*n, Active: 30, Most: 5000, Refused: 2 * n}, Bytes: bytes(900_000*n, 20_000_000*n), Queues: []admin.Queue{{Known: true, Length: 3, Most: 4096}}},
			{Name: "mail", State: admin.Paused, PausedAt: "per_second", Addresses: []string{"[::1]:25", "unix:/run/mail"}, Connections: admin.Connections{Accepted: 100 + 10*n, Active: 12}, Bytes: bytes(100_000*n, 5_000_000*n)},
		},
		Upstreams: []admin.Upstream{
			{Name: "app", Balance: "least_conn", Active: 42, Bytes: bytes(1_000_000*n, 25_000_000*n), Endpoints: []admin.Endpoint{
				{Name: "one", Address: "10.0.0.1:80", State: admin.Up, Weight: 1, Active: 30, Max: 100, EndpointCounts: tally.EndpointCounts{Total: 700 + 30*n}, Bytes: bytes(600_000*n, 15_000_000*n), Answers: &admin.Answers{Made: 700 + 30*n, SumUs: 700*333 + 30*400*n}, Limited: map[string]float64{"client": 90 + 8*float64(n), "endpoint": 9 + float64(n), "endpoint_network": float64(n)}},
				{Name: "two", Address: "10.0.0.2:80", State: admin.Ejected, Why: "5 failures in a row: connection refused by the endpoint, which is what a long text looks like here", Weight: 1, EndpointCounts: tally.EndpointCounts{Total: 40, Failures: 5 + n}, Bytes: bytes(0, 0)},
				{Name: "three", Address: "10.0.0.3:80", State: admin.Draining, Weight: 5, Active: 12, EndpointCounts: tally.EndpointCounts{Total: 300 + 20*n}, Bytes: bytes(400_000*n, 10_000_000*n), ByHand: []string{"drain by uid=1000 at 2026-01-02 09:59:00"}, Answers: &admin.Answers{Made: 300 + 20*n, SumUs: 300*333 + 20*300_000*n}, Limited: map[string]float64{"client": 10 + float64(n), "endpoint": 90 + 9*float64(n)}},
			}},
			{Name: "shop", Balance: "first", Breaker: "open", BreakerWhy: "9 of 9 clients were not served", Endpoints: []admin.Endpoint{
				{Name: "10.0.1.1:80", Address: "10.0.1.1:80", State: admin.Down, Why: "its check fails: connect: connection refused", Weight: 1},
			}},
		},
	}
}

func verdicts() admin.Why {
	return admin.Why{
		WindowUs: 1_000_000, Count: 30, Verdict: "client", Shares: map[string]float64{"client": 0.75, "endpoint": 0.2, "idle": 0.05}, Advice: "The clients take the bytes slowly: nothing here mends that.",
		Sessions: []admin.SessionWhy{
			{Client: "192.0.2.7:51234", Listener: "web", Upstream: "app", Endpoint: "10.0.0.1:80", Name: "one", AgeUs: 12_300_000, Verdict: "client", Why: "its window was closed for 97 % of the time", ClientLeg: &admin.Leg{Received: 300, Sent: 1_200_000}},
			{Client: "[2001:db8::1]:443", Listener: "web", Upstream: "app", Endpoint: "10.0.0.3:80", Name: "three", AgeUs: 90_000_000, Verdict: "endpoint", Why: "it has sent nothing for 80 % of the time"},
		},
	}
}

// A process is one that gives statuses, and then an error.
type process struct {
	statuses []admin.Status
	why      admin.Why
	asked    []admin.WhyQuery
}

var errGone = errors.New("unix:/run/penstock/admin.sock: no process runs there")

func (p *process) Status(context.Context) (admin.Status, error) {
	if len(p.statuses) == 0 {
		return admin.Status{}, errGone
	}
	s := p.statuses[0]
	p.statuses = p.statuses[1:]
	return s, nil
}

func (p *process) Why(_ context.Context, q admin.WhyQuery) (admin.Why, error) {
	p.asked = append(p.asked, q)
	return p.why, nil
}

// A screen is a model, and its terminal.
type screen struct {
	t     *testing.T
	model *top.Model
}

// newScreen returns a screen that has taken looks two seconds apart, and is of that size.
func newScreen(t *testing.T, width, height int, looks ...admin.Status) *screen {
	t.Helper()
	s := &screen{t, top.NewModel(t.Context(), top.Config{Source: &process{why: verdicts()}, Interval: time.Second})}
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	for i, status := range looks {
		s.send(top.Looked(top.Look{Status: status, At: start.Add(time.Duration(2*i) * time.Second)}, nil))
	}
	return s
}

func (s *screen) send(msg tea.Msg) tea.Cmd {
	_, cmd := s.model.Update(msg)
	return cmd
}

// press presses keys, each by its name.
func (s *screen) press(keys ...string) (cmd tea.Cmd) {
	named := map[string]tea.Key{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab}, "shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift}, "up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown},
		"pgup": {Code: tea.KeyPgUp}, "pgdown": {Code: tea.KeyPgDown}, "home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd}, "backspace": {Code: tea.KeyBackspace}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
		"left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight}, "space": {Code: tea.KeySpace, Text: " "},
	}
	for _, name := range keys {
		key, ok := named[name]
		if !ok {
			key = tea.Key{Code: []rune(name)[0], Text: name}
		}
		cmd = s.send(tea.KeyPressMsg(key))
	}
	return cmd
}

func (s *screen) text() string { return ansi.Strip(s.model.View().Content) }

// row returns the first line of the view that contains a text.
func (s *screen) row(text string) string {
	for line := range strings.Lines(s.text()) {
		if strings.Contains(line, text) {
			return strings.TrimRight(line, " \n")
		}
	}
	return ""
}

func (s *screen) kept(name string) {
	s.t.Helper()
	kept(s.t, name, s.text())
}

func kept(t *testing.T, name, text string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	text = strings.Join(lines, "\n") + "\n"
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (write it anew by -update):\n%s", path, diff)
	}
}

// crowd is a status with so many endpoints.
func crowd(n int, seconds int64) admin.Status {
	s := status(seconds)
	u := &s.Upstreams[0]
	u.Endpoints = nil
	for i := range n {
		u.Endpoints = append(u.Endpoints, admin.Endpoint{
			Name: fmt.Sprintf("e%05d", i), State: admin.Up, Weight: 1, Active: int64(i % 17), EndpointCounts: tally.EndpointCounts{Total: int64(i) * (1 + seconds)}, Bytes: bytes(int64(i)*seconds, int64(i)*1000*seconds),
		})
	}
	return s
}
