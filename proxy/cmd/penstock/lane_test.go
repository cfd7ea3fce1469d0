package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneDevicesAreChecked: check warns of devices that are not there where a listener has the lane, and says what run would do; the error of run is in
// the same words, and names them.
func TestLaneDevicesAreChecked(t *testing.T) {
	t.Parallel()

	const missing = "lane.devices: there is no network device nowhere0 here"
	file := filepath.Join(t.TempDir(), "p.yaml")
	text := func(lane, devices string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(`
lane: {devices: [`+devices+`]}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, lane: `+lane+`}]
upstreams: [{name: u, endpoints: ["127.0.0.1:1"], health_check: off}]`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ lane, devices, want string }{
		{"require", "lo, nowhere0", "warning: " + missing + ": penstock run would not start here\n"},
		{"auto", "nowhere0", "warning: " + missing + ": sessions would stay in user space here\n"},
		{"off", "nowhere0", ""},
		{"auto", "lo", ""},
	} {
		text(c.lane, c.devices)
		code, _, stderr := call("check", file)
		if code != 0 || strings.Contains(stderr, "lane.devices") != (c.want != "") || !strings.Contains(stderr, c.want) {
			t.Errorf("%s at %s: %d, %q", c.lane, c.devices, code, stderr)
		}
	}
	text("require", "nowhere0")
	if code, _, stderr := call("run", file); code == 0 || !strings.Contains(stderr, missing) || strings.Contains(stderr, "route ip+net") {
		t.Errorf("run: %d, %q", code, stderr)
	}
}

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

// TestLaneFlushIsConfirmed: lane flush asks on a terminal if there is a session that it resets. It changes nothing before that, and nothing with --dry-run. lane off asks nothing.
func TestLaneFlushIsConfirmed(t *testing.T) {
	t.Parallel()

	off, flush := []string{"/v1/lane/off", "/v1/lane/return"}, []string{"/v1/lane/flush"}
	bind, asked := laneProcess(t, &admin.Lane{State: admin.LaneOn, Active: 5})
	const question = `5 sessions selected: all are reset on both sides\s+reset them\? \[y/N\] `
	open := func() *terminal {
		term := openTerminal(t, 120, 40, penstockCommand(t, nil, "lane", "flush", "--admin", bind))
		term.shows(question)
		return term
	}
	term := open()
	term.press("\x03")
	term.shows(`lane flush: interrupted: nothing was ended`)
	term.interrupted()
	term = open()
	term.press("n\r")
	term.shows(`lane flush: not confirmed: nothing was changed`)
	<-term.done
	if got := asked(); len(got) != 0 {
		t.Errorf("before it is confirmed: %v", got)
	}
	term = open()
	term.press("y\r")
	term.shows(`the lane is off`)
	term.ends()
	if got := asked(); !slices.Equal(got, flush) {
		t.Errorf("confirmed: %v, want %v", got, flush)
	}
	term = openTerminal(t, 120, 40, penstockCommand(t, nil, "lane", "flush", "--yes", "--admin", bind))
	if text := term.ends(); strings.Contains(text, "?") || !slices.Equal(asked(), flush) {
		t.Errorf("--yes: %q", text)
	}
	if code, text, _ := call("lane", "flush", "--dry-run", "--admin", bind); code != 0 || !strings.Contains(text, "5 sessions selected: ") || len(asked()) != 0 {
		t.Errorf("--dry-run: %d: %q", code, text)
	}
	if code, text, _ := call("lane", "flush", "--admin", bind); code != 0 || strings.Contains(text, "?") || !slices.Equal(asked(), flush) {
		t.Errorf("without a terminal: %d: %q", code, text)
	}
	for args, n := range map[string]int{"lane off --keep": 1, "lane off": 2} {
		term = openTerminal(t, 120, 40, penstockCommand(t, nil, append(strings.Fields(args), "--admin", bind)...))
		if text := term.ends(); strings.Contains(text, "?") || !slices.Equal(asked(), off[:n]) {
			t.Errorf("%v: %q", args, text)
		}
	}
	if code, _, text := call("lane", "off", "--dry-run", "--admin", bind); code != 2 || !strings.Contains(text, "resets no session") {
		t.Errorf("%d: %q", code, text)
	}
	for _, l := range []*admin.Lane{nil, {State: admin.LaneOn, GoOn: 2}} {
		bind, asked := laneProcess(t, l)
		if code, text, _ := call("lane", "flush", "--dry-run", "--admin", bind); code != 0 || strings.Contains(text, "selected") || len(asked()) != 0 {
			t.Errorf("%d: %q", code, text)
		}
	}
}
