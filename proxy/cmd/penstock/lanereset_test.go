package main

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// laneProcess answers as a process does whose lane is in that state. It returns its address, and the changes that it was asked for since the last call.
func laneProcess(t *testing.T, l *admin.Lane) (bind string, asked func() []string) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "admin.sock")
	socket, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var changes []string
	process := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = admin.LaneChanged{State: admin.LaneOff, Returned: 3, Reset: 2}
		if r.Method == http.MethodGet {
			var st admin.Status
			st.Lane = l
			answer = st
		} else {
			mu.Lock()
			changes = append(changes, r.URL.Path)
			mu.Unlock()
		}
		w.Header().Set("Penstock-Admin", "1")
		_ = json.NewEncoder(w).Encode(answer)
	})}
	go func() { _ = process.Serve(socket) }()
	t.Cleanup(func() { process.Close() })
	return "unix:" + at, func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { changes = nil }()
		return changes
	}
}

// TestLaneResetsAreConfirmed: lane off asks on a terminal if there are adopted sessions, which it resets, and lane flush if there are any. They change
// nothing before that, and nothing with --dry-run.
func TestLaneResetsAreConfirmed(t *testing.T) {
	t.Parallel()

	off, flush := []string{"/v1/lane/off", "/v1/lane/return"}, []string{"/v1/lane/flush"}
	bind, asked := laneProcess(t, &admin.Lane{State: admin.LaneOn, Active: 5, AdoptedActive: 2})
	for _, c := range []struct {
		command, question string
		changes           []string
	}{
		{"off", `5 sessions selected: 3 come back to user space, 2 are adopted, and are reset on both sides\s+reset them\? \[y/N\] `, off},
		{"flush", `5 sessions selected: all are reset on both sides, 2 of them adopted\s+reset them\? \[y/N\] `, flush},
	} {
		term := openTerminal(t, 120, 40, penstockCommand(t, nil, "lane", c.command, "--admin", bind))
		term.shows(c.question)
		term.press("\x03")
		term.shows(`lane ` + c.command + `: interrupted: nothing was ended`)
		term.interrupted()
		term = openTerminal(t, 120, 40, penstockCommand(t, nil, "lane", c.command, "--admin", bind))
		term.shows(c.question)
		term.press("n\r")
		term.shows(`lane ` + c.command + `: not confirmed: nothing was changed`)
		<-term.done
		if got := asked(); len(got) != 0 {
			t.Errorf("%s: before it is confirmed: %v", c.command, got)
		}
		term = openTerminal(t, 120, 40, penstockCommand(t, nil, "lane", c.command, "--admin", bind))
		term.shows(c.question)
		term.press("y\r")
		term.shows(`the lane is off`)
		term.ends()
		if got := asked(); !slices.Equal(got, c.changes) {
			t.Errorf("%s: confirmed: %v, want %v", c.command, got, c.changes)
		}
		term = openTerminal(t, 120, 40, penstockCommand(t, nil, "lane", c.command, "--yes", "--admin", bind))
		if text := term.ends(); strings.Contains(text, "?") || !slices.Equal(asked(), c.changes) {
			t.Errorf("%s --yes: %q", c.command, text)
		}
		if code, text, _ := call("lane", c.command, "--dry-run", "--admin", bind); code != 0 || !strings.Contains(text, "5 sessions selected: ") || len(asked()) != 0 {
			t.Errorf("%s --dry-run: %d: %q", c.command, code, text)
		}
		if code, text, _ := call("lane", c.command, "--admin", bind); code != 0 || strings.Contains(text, "?") || !slices.Equal(asked(), c.changes) {
			t.Errorf("%s without a terminal: %d: %q", c.command, code, text)
		}
	}
	term := openTerminal(t, 120, 40, penstockCommand(t, nil, "lane", "off", "--keep", "--admin", bind))
	if text := term.ends(); strings.Contains(text, "?") || !slices.Equal(asked(), off[:1]) {
		t.Errorf("off --keep: %q", text)
	}
	if code, _, text := call("lane", "off", "--keep", "--dry-run", "--admin", bind); code != 2 || !strings.Contains(text, "leave it out, or --dry-run") {
		t.Errorf("%d: %q", code, text)
	}
	bind, asked = laneProcess(t, &admin.Lane{State: admin.LaneOn, Active: 5})
	term = openTerminal(t, 120, 40, penstockCommand(t, nil, "lane", "off", "--admin", bind))
	if text := term.ends(); strings.Contains(text, "?") || !slices.Equal(asked(), off) {
		t.Errorf("off without adopted sessions: %q", text)
	}
}

// TestLaneResetTexts: the commands say how many sessions come back, and how many are reset.
func TestLaneResetTexts(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		own, adopted int64
		off, flush   string
	}{
		{0, 0, "", ""},
		{1, 0, ": 1 comes back to user space", ": all are reset on both sides"},
		{0, 1, ": 1 is adopted, and is reset on both sides", ": all are reset on both sides, 1 of them adopted"},
		{1, 1, ": 1 comes back to user space, 1 is adopted, and is reset on both sides", ": all are reset on both sides, 1 of them adopted"},
	} {
		off, asks := offText(c.own, c.adopted)
		if off != c.off || asks != (c.adopted > 0) {
			t.Errorf("%d and %d: off: %q, %v", c.own, c.adopted, off, asks)
		}
		flush, asks := flushText(c.own, c.adopted)
		if flush != c.flush || asks != (c.own+c.adopted > 0) {
			t.Errorf("%d and %d: flush: %q, %v", c.own, c.adopted, flush, asks)
		}
	}
	for _, l := range []*admin.Lane{nil, {State: admin.LaneOn, GoOn: 2}} {
		bind, asked := laneProcess(t, l)
		if code, text, _ := call("lane", "flush", "--dry-run", "--admin", bind); code != 0 || strings.Contains(text, "selected") || len(asked()) != 0 {
			t.Errorf("%d: %q", code, text)
		}
	}
}
