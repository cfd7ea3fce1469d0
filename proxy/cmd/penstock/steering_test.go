package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// asking is a load balancer in this process with a client whose question is open.
func asking(t *testing.T) *served {
	t.Helper()
	got := make(chan struct{}, 1)
	endpoint := sockets.Server(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		got <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	p := startServing(t, fmt.Sprintf(`
listeners: [{name: web, bind: "unix:%%[1]s/web", upstream: app}]
upstreams: [{name: app, endpoints: [%q], health_check: off}]
`, endpoint))
	client, err := net.Dial("unix", filepath.Join(p.dir, "web"))
	must(t, err)
	t.Cleanup(func() { client.Close() })
	if _, err := client.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	<-got
	return p
}

// TestSessionsEndInterrupted: an interrupt of the question ends the command, and no session. One of an end that is under
// way says how that is called off.
func TestSessionsEndInterrupted(t *testing.T) {
	t.Parallel()

	const interrupt = "\x03"
	p := asking(t)
	bind := "unix:" + filepath.Join(p.dir, "admin")
	term := openTerminal(t, 120, 40, penstockCommand(t, nil, "sessions", "end", "--all", "--now", "--admin", bind))
	term.shows(`1 session selected. All end immediately, even in the middle of a transfer.\s+end them\? \[y/N\] `)
	term.press(interrupt)
	term.shows(`interrupted: nothing was ended`)
	term.interrupted()
	term = openTerminal(t, 120, 40, penstockCommand(t, nil, "sessions", "end", "--all", "--admin", bind))
	term.shows(`(?s)1 session selected\. Each ends after 10s of quiet.*end them\? \[y/N\] `)
	term.press("y\r")
	if _, err := p.stderr.wait(`"msg":"sessions are being ended"`, 1, term.done); err != nil {
		t.Fatal(err)
	}
	term.press(interrupt)
	term.shows(`interrupted, but the process continues to end sessions: penstock sessions end --stop stops it`)
	term.interrupted()
	said, err := penstockCommand(t, nil, "sessions", "end", "--stop", "--admin", bind).Output()
	if want := "1 request stopped, 1 session goes on\n"; err != nil || string(said) != want {
		t.Errorf("%q, %v, want %q", said, err, want)
	}
}

func (term *terminal) interrupted() {
	term.t.Helper()
	<-term.done
	_ = term.cmd.Wait()
	if code := term.cmd.ProcessState.ExitCode(); code != 130 {
		text, _ := term.output.text()
		term.t.Errorf("exit code %d: %q", code, text)
	}
}

// TestWhenEnded: the message before sessions end says when each of them does.
func TestWhenEnded(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		query admin.EndQuery
		n     int64
		want  string
	}{
		{admin.EndQuery{}, 0, ""},
		{admin.EndQuery{}, 12, ". Each ends after 10s of quiet, if its endpoint sent last. After 30s the others go on; --now ends them too."},
		{admin.EndQuery{Quiet: time.Second, Grace: 2 * time.Minute, ThenReset: true}, 2, ". Each ends after 1s of quiet, if its endpoint sent last. After 2m0s the others are reset."},
		{admin.EndQuery{Over: 5 * time.Minute}, 2, ". Each gets its turn at a random moment within 5m0s, and then ends after 10s of quiet, if its endpoint sent last. After 30s the others go on; --now ends them too."},
		{admin.EndQuery{Now: true}, 2, ". All end immediately, even in the middle of a transfer."},
		{admin.EndQuery{Now: true, Over: time.Minute}, 2, ". Each ends at a random moment within 1m0s, even in the middle of a transfer."},
	} {
		if got := whenEnded(&c.query, c.n); got != c.want {
			t.Errorf("%+v\n%q, want\n%q", c.query, got, c.want)
		}
	}
}

// TestLaneResults: the commands of the lane say how many sessions have come back, and how many are reset.
func TestLaneResults(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ changed, returned, flushed string }{
		{"0 0", ": no session had left user space", ": no session had left user space"},
		{"1 0", ": 1 session has come back to user space", ""},
		{"3 0", ": 3 sessions have come back to user space", ""},
		{"3 1", ": 3 sessions have come back to user space, and 1 is reset", ""},
		{"0 2", ": no session has come back to user space, and 2 are reset", ": 2 sessions are reset on both sides"},
		{"0 1", ": no session has come back to user space, and 1 is reset", ": 1 session is reset on both sides"},
	} {
		var l admin.LaneChanged
		if _, err := fmt.Sscan(c.changed, &l.Returned, &l.Reset); err != nil {
			t.Fatal(err)
		}
		if got := returnedOf(&l); got != c.returned {
			t.Errorf("%s: off: %q, want %q", c.changed, got, c.returned)
		}
		if got := flushedOf(&l); c.flushed != "" && got != c.flushed {
			t.Errorf("%s: flush: %q, want %q", c.changed, got, c.flushed)
		}
	}
}

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
	must(t, err)
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
	for _, l := range []*admin.Lane{nil, {State: admin.LaneOn, GoOn: 2}} {
		bind, asked := laneProcess(t, l)
		if code, text, _ := call("lane", "flush", "--dry-run", "--admin", bind); code != 0 || strings.Contains(text, "selected") || len(asked()) != 0 {
			t.Errorf("%d: %q", code, text)
		}
	}
}
