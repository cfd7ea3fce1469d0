package server_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// ends is a configuration in which clients end in all ways.
const ends = `
session_log: {to: sessions.log, format: %s}
listeners:
- {name: echo, bind: "127.0.0.1:0", upstream: echo, timeouts: {idle: 1s, half_close: 1s}}
- {name: reset, bind: "127.0.0.1:0", upstream: reset}
- {name: silent, bind: "127.0.0.1:0", upstream: silent, timeouts: {first_byte: 100ms}}
- {name: none, bind: "127.0.0.1:0", upstream: none}
- {name: full, bind: "127.0.0.1:0", upstream: full}
- {name: hello, bind: "127.0.0.1:0", routes: [{match: {sni: [a.example]}, upstream: echo}], require_tls: true, timeouts: {preread: 500ms}}
- {name: denied, bind: "127.0.0.1:0", upstream: echo, deny: [127.0.0.1]}
- {name: sorry, bind: "127.0.0.1:0", upstream: sorry}
- {name: unlogged, bind: "127.0.0.1:0", upstream: echo, session_log: false}
upstreams:
- {name: echo, endpoints: [{address: %[2]q, name: e1}], health_check: off, outlier_detection: off}
- {name: reset, endpoints: [%[3]q], health_check: off, outlier_detection: off}
- {name: silent, endpoints: [%[4]q], health_check: off, outlier_detection: off}
- {name: none, endpoints: ["127.0.0.1:1"], health_check: off, outlier_detection: off, retry: {attempts: 1}, queue: {hold: 0}}
- {name: full, endpoints: [{address: %[4]q, connections: 1}], health_check: off, outlier_detection: off, queue: {size: 5, timeout: 100ms}}
- {name: sorry, endpoints: ["127.0.0.1:1"], health_check: off, outlier_detection: off, queue: {hold: 0}, fallback: {respond: sorry.txt}}`

// endInAllWays has clients end in all ways, and returns how many lines that makes.
func endInAllWays(t *testing.T, r *rig) (lines int64) {
	t.Helper()
	come := func(listener string) *net.TCPConn {
		lines++
		return client(t, r.At(listener))
	}
	c := come("echo") // an orderly end
	echoes(t, c, "hello")
	c.CloseWrite()
	gone(t, c)
	c = come("echo") // idle
	echoes(t, c, "hello")
	gone(t, c)
	c = come("echo") // reset by the client
	echoes(t, c, "hello")
	c.SetLinger(0)
	c.Close()
	lines++
	refused(t, r.At("reset")) // by the endpoint
	gone(t, come("silent"))   // its first byte does not come
	lines++
	refused(t, r.At("none"))
	first := come("full")
	r.Until("the only place is taken", func() bool { return r.Summary().Connections.Active > 0 })
	gone(t, come("full")) // time in the queue
	first.Close()
	gone(t, come("hello")) // no hello in time
	c = come("hello")
	io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	gone(t, c)
	lines++
	refused(t, r.At("denied"))
	c = come("sorry")
	if b, _ := io.ReadAll(c); string(b) != "sorry\n" {
		t.Errorf("response %q", b)
	}
	c.Close()
	c = client(t, r.At("unlogged"))
	echoes(t, c, "hello")
	c.Close()
	return lines
}

// startEnds starts it.
func startEnds(t *testing.T, format string) *rig {
	t.Helper()
	reset := sockets.Server(t, func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) })
	silent := sockets.Server(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	return start(t, fmt.Sprintf(ends, format, sockets.Server(t, sockets.Echo), reset, silent), "sorry.txt", "sorry\n")
}

// logged waits until so many lines are written, ends the load balancer, and returns the log.
func (r *rig) logged(t *testing.T, lines int64) []byte {
	t.Helper()
	r.Until("all clients have left", func() bool { return r.Summary().Connections.Active == 0 })
	must(t, r.End())
	b, err := os.ReadFile(filepath.Join(r.Dir, "sessions.log"))
	must(t, err)
	c := r.Summary().SessionLog
	if n := int64(bytes.Count(b, []byte("\n"))); n != lines || c == nil || c.Lines != lines || len(c.Dropped) > 0 {
		t.Errorf("%d lines, want %d; %+v\n%s", n, lines, c, b)
	}
	return b
}

// TestSessionLog: one line for each client, with the reason of its end.
func TestSessionLog(t *testing.T) {
	t.Parallel()

	r := startEnds(t, "json")
	b := r.logged(t, endInAllWays(t, r))
	ends, ids := make(map[string]int), make(map[string]bool)
	for line := range bytes.Lines(b) {
		var got struct{ ID, Listener, Outcome, Reason, State, Client, Upstream string }
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		ends[strings.Join([]string{got.Listener, got.Outcome, got.Reason, got.State}, " ")]++
		if ids[got.ID] || len(got.ID) != 32 || !strings.HasPrefix(got.Client, "127.0.0.1:") {
			t.Errorf("a line is %s", line)
		}
		ids[got.ID] = true
	}
	for _, want := range []string{
		"echo joined eof --", "echo joined idle-timeout cD", "echo joined reset CD", "reset joined reset SD", "silent joined first-byte-timeout sD", "none refused upstream SC",
		"full refused upstream sQ", "hello refused preread cR", "hello refused hello PR", "denied refused address PR", "sorry responded  LR",
	} {
		if ends[want] != 1 {
			t.Errorf("%q: %d times", want, ends[want])
		}
		delete(ends, want)
	}
	t.Logf("beside these: %v", ends)
}

// TestHalog: Debian's halog parses every line, in each of its modes for TCP.
func TestHalog(t *testing.T) {
	t.Parallel()

	halog := software.Need(t, "halog", "haproxy")
	r := startEnds(t, "haproxy-tcp")
	lines := endInAllWays(t, r)
	ours := r.logged(t, lines)
	errors := func(b []byte, args ...string) (n int, out string) {
		cmd, stderr := exec.Command(halog, args...), new(strings.Builder)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(b), stderr
		stdout, err := cmd.Output()
		if err != nil {
			t.Fatalf("halog %v: %v, %s", args, err, stderr)
		}
		n = strings.Count(stderr.String(), "Truncated line")
		if m := regexp.MustCompile(`(\d+) parsing errors`).FindStringSubmatch(stderr.String()); m != nil && m[1] != "0" {
			n++
		}
		return n, string(stdout)
	}
	for _, mode := range []string{"-c", "-E", "-E -c", "-e -c", "-ad 0", "-ad 0 -ac 0", "-st"} {
		if n, out := errors(ours, strings.Fields(mode)...); n > 0 {
			t.Errorf("halog %s: %d errors\n%s\n%s", mode, n, out, ours)
		}
	}
	if _, out := errors(ours, "-c"); strings.TrimSpace(out) != fmt.Sprint(lines) {
		t.Errorf("halog -c counts %s lines of %d", out, lines)
	}
}

// dropped adds up lines that were dropped.
func dropped(c *admin.SessionLog) (n int64) {
	for _, one := range c.Dropped {
		n += one
	}
	return n
}

// TestSessionLogUnderLoad: every client has exactly one line at its end, or is counted as dropped, through
// reloads and the drain.
func TestSessionLogUnderLoad(t *testing.T) {
	t.Parallel()

	const text = `
session_log: {to: sessions.log, template: %q, format: %s, at: [start, end]}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`
	echo := sockets.Server(t, sockets.Echo)
	plain, templated := fmt.Sprintf(text, "", "json", echo), fmt.Sprintf(text, `{{"id":"{id}","event":"{event}"}`, "template", echo)
	r := start(t, plain)
	at := r.At("l")
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 250 {
				c, err := net.Dial("tcp", at)
				if err != nil {
					t.Error(err)
					return
				}
				c.SetDeadline(time.Now().Add(condition.Patience))
				io.WriteString(c, "x")
				io.ReadFull(c, make([]byte, 1))
				c.Close()
			}
		})
	}
	for i := range 6 {
		r.Reload([]string{templated, plain}[i%2])
		time.Sleep(10 * time.Millisecond) // any time will do
	}
	clients.Wait()
	held := client(t, at) // until the drain
	echoes(t, held, "x")
	r.Stop()
	held.Close()
	must(t, r.End())
	b, err := os.ReadFile(filepath.Join(r.Dir, "sessions.log"))
	must(t, err)
	seen := make(map[string]int)
	for line := range bytes.Lines(b) {
		var got struct{ ID, Event string }
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		seen[got.ID+got.Event]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s has %d lines", id, n)
		}
	}
	sum := r.Summary()
	if want := 2 * sum.Connections.Accepted; int64(len(seen))+dropped(sum.SessionLog) != want || sum.Connections.Accepted != 2001 {
		t.Errorf("%d lines of %d, %+v", len(seen), want, sum.SessionLog)
	}
}

// TestSessionLogProgress: a session that lasts has a line now and then.
func TestSessionLogProgress(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
session_log: {to: sessions.log, at: start, every: 1s, format: template, template: "{event} {bytes_to_client}"}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, sockets.Server(t, sockets.Echo)))
	c := client(t, r.At("l"))
	echoes(t, c, "hello")
	path := filepath.Join(r.Dir, "sessions.log")
	r.Until("there are three lines", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && bytes.Count(b, []byte("\n")) >= 3
	})
	c.Close()
	b, _ := os.ReadFile(path)
	if !bytes.HasPrefix(b, []byte("start 0\nprogress 5\nprogress 5\n")) {
		t.Errorf("lines %q", b)
	}
}

// TestSessionLogReload: a destination that cannot be opened fails a reload, which changes nothing then; the
// log ends when it is not in the file any more.
func TestSessionLogReload(t *testing.T) {
	t.Parallel()

	const text = `
session_log: {to: %q}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`
	echo := sockets.Server(t, sockets.Echo)
	r := start(t, fmt.Sprintf(text, "a.log", echo))
	talk := func() {
		c := client(t, r.At("l"))
		echoes(t, c, "x")
		c.Close()
		r.Until("the client has left", func() bool { return r.Summary().Connections.Active == 0 })
	}
	talk()
	if err := r.Apply(t.Context(), r.Load(fmt.Sprintf(text, "none/b.log", echo))); err == nil || !strings.Contains(err.Error(), "none/b.log") {
		t.Errorf("a reload gives %v", err)
	}
	talk()
	before := r.Summary().SessionLog
	r.Reload(strings.Replace(fmt.Sprintf(text, "a.log", echo), `session_log: {to: "a.log"}`, "", 1))
	talk()
	must(t, r.End())
	if after := r.Summary().SessionLog; after.Lines != 2 || before.Lines > 2 {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// TestLostLinesAreAProblem: where the lines of the session log cannot be written the status has the error, and how many
// were lost within the last minute.
func TestLostLinesAreAProblem(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf("session_log: {to: /dev/full}\nlisteners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]", named(t, "a")))
	for range 3 {
		whose(t, r.At("l"))
	}
	r.Until("the error is in the status", func() bool {
		l := r.Status().SessionLog
		return l != nil && l.Error == "/dev/full: no space left on device"
	})
	r.Logs("error=\"/dev/full: no space left on device\"")
	if l := r.Status().SessionLog; l.Lines != 0 {
		t.Errorf("%+v", l)
	}
}

// TestStuckSessionLog: once lines have waited for ten seconds the status, the metrics and the log of the process say that the
// session log takes none, until it does.
func TestStuckSessionLog(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(path, 0o600))
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer reader.Close()
	raw, err := reader.SyscallConn() // after Fd, Close would not end a Read
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { _, err = sys.SetPipeSize(int(fd), 4096) }))
	must(t, err)
	r := start(t, fmt.Sprintf("session_log: {to: %q}\nlisteners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]", path, named(t, "a")))
	began := time.Now()
	for range 30 { // lines of more than a page
		whose(t, r.At("l"))
	}
	r.Until("the log is stuck", func() bool { return !r.Status().SessionLog.StuckSince.IsZero() })
	since := r.Status().SessionLog.StuckSince
	if since.Before(began) || time.Since(since) < 10*time.Second || !r.sampled().Process.SessionLog.StuckSince.Equal(since) {
		t.Errorf("since %v", since)
	}
	r.Logs("the session log takes no lines")
	go io.Copy(io.Discard, reader) // ends with the reader
	r.Until("it is not", func() bool { return r.Status().SessionLog.StuckSince.IsZero() })
	r.Logs("the session log is written again")
}

// TestShippedSessions: each line has what deploy/loki/config.alloy takes from it, with a time in its layout and a trace id of its own.
func TestShippedSessions(t *testing.T) {
	t.Parallel()

	const sessions = 20
	text, err := os.ReadFile("../../deploy/loki/config.alloy")
	must(t, err)
	var fields []string
	for _, found := range regexp.MustCompile(`(?:stage.json \{\s*expressions|stage.labels \{\s*values|stage.structured_metadata \{\s*values) *= \{([^}]*)\}`).FindAllSubmatch(text, -1) {
		for pair := range strings.SplitSeq(string(found[1]), ",") {
			name, from, _ := strings.Cut(pair, "=")
			fields = append(fields, cmp.Or(strings.Trim(strings.TrimSpace(from), `"`), strings.TrimSpace(name)))
		}
	}
	if len(fields) < 3 || !slices.Contains(fields, "id") || !strings.Contains(string(text), `format = "RFC3339Nano"`) {
		t.Fatalf("the configuration takes %q", fields)
	}
	r := start(t, fmt.Sprintf(`
session_log: {to: sessions.log}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{name: e, address: %q}], health_check: off}]`, sockets.Server(t, sockets.Echo)))
	talked(t, r.At("l"), sessions)
	ids := make(map[string]bool)
	for line := range bytes.Lines(r.logged(t, sessions)) {
		var one map[string]any
		must(t, json.Unmarshal(line, &one))
		for _, name := range fields {
			if v, ok := one[name].(string); !ok || v == "" {
				t.Errorf("there is no %s in %s", name, line)
			}
		}
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(one["time"]))
		if id, _ := one["id"].(string); err != nil || time.Since(at).Abs() > time.Hour || len(id) != 32 || ids[id] {
			t.Errorf("the time or the trace id of %s", line)
		} else {
			ids[id] = true
		}
	}
}
