package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/rollback"
)

// stalled returns a full pipe without a reader.
func stalled(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for _, size := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = w.Write(make([]byte, size))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	}
	return w
}

// stall starts a proxy with these readers of standard output and error, and returns the
// address of its unix socket.
func stall(t *testing.T, s *stage, stdout, stderr *os.File, args ...string) (address string) {
	t.Helper()
	address = s.workDir + "/stall.sock"
	p := &program{cmd: exec.Command(s.workDir+"/.bin/penstock", append([]string{"proxy", "--listen", "unix:" + address}, args...)...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	must(t, p.cmd.Start())
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	s.processes["p"] = p
	condition.Await(t, "it listens", func() bool {
		conn, err := net.Dial("unix", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return "unix:" + address
}

func code(t *testing.T, s *stage) int {
	t.Helper()
	p := s.processes["p"]
	select {
	case <-p.done:
	case <-time.After(condition.Patience):
		t.Fatal("it has not ended")
	}
	return p.cmd.ProcessState.ExitCode()
}

// No reader of the log: connections are served anyway, signals obeyed.
func TestStalledLogCostsNothing(t *testing.T) {
	t.Parallel()

	s, variables := stageOf(t)
	must(t, s.origin([]string{"ORIGIN"}))
	must(t, s.nobody([]string{"NOBODY"}))
	address := stall(t, s, nil, stalled(t), "--to", variables["NOBODY"], "--to", variables["ORIGIN"], "--log-level", "debug")
	must(t, greet(s, address, 4))
	for _, name := range []string{"0", "1", "2", "3"} {
		must(t, s.client([]string{name, "expect", "hello"}))
	}
	must(t, s.signal([]string{"p", "TERM"}))
	must(t, waitRefused(address))
	must(t, s.signal([]string{"p", "TERM"}))
	if got := code(t, s); got != cli.ExitError {
		t.Errorf("the exit code is %d, want %d: sessions were cut", got, cli.ExitError)
	}
}

func waitRefused(address string) error {
	path, _ := strings.CutPrefix(address, "unix:")
	if !condition.Eventually(func() bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) }) {
		return errors.New("it still listens")
	}
	return nil
}

// No reader of the summary: SIGTERM is obeyed, and SIGUSR1 ends nothing.
func TestStalledSummaryCostsNothing(t *testing.T) {
	t.Parallel()

	s, variables := stageOf(t)
	must(t, s.origin([]string{"ORIGIN"}))
	address := stall(t, s, stalled(t), nil, "--to", variables["ORIGIN"])
	must(t, s.signal([]string{"p", "USR1"}))
	must(t, greet(s, address, 1))
	must(t, s.client([]string{"0", "expect", "hello"}))
	must(t, s.client([]string{"0", "finish"}))
	must(t, s.client([]string{"0", "close"}))
	must(t, s.signal([]string{"p", "TERM"}))
	if got := code(t, s); got != cli.ExitOK {
		t.Errorf("the exit code is %d, want %d", got, cli.ExitOK)
	}
}

// gate is a writer that waits to be released.
type gate struct {
	begun, open chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	select {
	case g.begun <- struct{}{}:
	default:
	}
	<-g.open
	return g.Buffer.Write(p)
}

func TestSpoolDropsAndReports(t *testing.T) {
	t.Parallel()

	g := &gate{begun: make(chan struct{}, 1), open: make(chan struct{})}
	var dropped int64
	s := newAsyncWriter(g, func(n int64) { dropped += n })
	line := []byte("line\n")
	s.Write(line)
	<-g.begun // the first is taken out
	for range maxSpooled + 7 {
		s.Write(line)
	}
	line[0] = 'L' // it belongs to the caller again
	close(g.open)
	s.close(context.Background())
	if want := strings.Repeat("line\n", maxSpooled+1); g.String() != want || dropped != 7 {
		t.Errorf("%d bytes were written, %d dropped, want %d and 7", g.Len(), dropped, len(want))
	}
}

func TestSpoolGivesUpAtTheEnd(t *testing.T) {
	t.Parallel()

	g := &gate{begun: make(chan struct{}, 1), open: make(chan struct{})}
	s := newAsyncWriter(g, nil)
	s.Write([]byte("line\n"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.close(ctx)
	close(g.open)
	<-s.written
}

// A signal while the proxy opens ends it: here it waits for a lock on the directory.
func TestStopWhileItOpens(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	stops := make(chan os.Signal, 1)
	stops <- syscall.SIGTERM
	var stdout, stderr bytes.Buffer
	e := &cli.Env{Args: []string{"proxy", "--listen", "unix:" + dir + "/s", "--to", "127.0.0.1:1"}, Stdout: &stdout, Stderr: &stderr, Getenv: os.Getenv, Stops: stops}
	if code := run(e); code != cli.ExitOK || stdout.Len() != 0 || !strings.Contains(stderr.String(), "stopped before it listened") {
		t.Errorf("exit code %d, %q, %q", code, stdout.String(), stderr.String())
	}
}

// poison appends a text to every text in a value, keys of maps included.
func poison(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem(), text)
		}
	case reflect.String:
		v.SetString(v.String() + text)
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), text)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value, other := reflect.New(v.Type().Elem()).Elem(), reflect.New(key.Type()).Elem()
			value.Set(v.MapIndex(key))
			other.Set(key)
			v.SetMapIndex(key, reflect.Value{})
			poison(other, text)
			poison(value, text)
			v.SetMapIndex(other, value)
		}
	case reflect.Struct:
		if _, isTime := v.Interface().(time.Time); isTime {
			return
		}
		for i := range v.NumField() {
			poison(v.Field(i), text)
		}
	}
}

// moves reports whether a text contains, beside the ends of lines, a terminal's control
// characters, or invalid characters.
func moves(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || unicode.In(r, unicode.Zl, unicode.Zp))
	})
}

// printed returns the output for data with a text in each place that others control.
func printed(t testing.TB, text string) map[string]string {
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.Local)
	made := make(map[string]string)
	write := func(name string, f func(w io.Writer) error) {
		var out bytes.Buffer
		if err := f(&out); err != nil {
			t.Errorf("%s of %q: %v", name, text, err)
		}
		made[name] = out.String()
	}
	status := aStatus(now)
	poison(reflect.ValueOf(status), text)
	write("status", func(w io.Writer) error { return writeStatus(w, status, now, false) })
	write("status in JSON", func(w io.Writer) error { return writeJSON(w, status) })
	idle := int64(1)
	sessions := admin.Sessions{Sessions: []admin.Session{{Client: "c", Listener: "l", Upstream: "u", Endpoint: "e", Name: "n", State: "joined", ID: "0.1.2", Verdict: "idle", IdleUs: &idle}}}
	poison(reflect.ValueOf(&sessions), text)
	write("sessions", func(w io.Writer) error { return writeSessions(w, &sessions) })
	sources := admin.Sources{Sources: []admin.Source{{Source: "10.0.0.7"}}}
	poison(reflect.ValueOf(&sources), text)
	write("sources", func(w io.Writer) error { return writeSources(w, &sources) })
	denied := admin.Denied{Denied: []admin.Denial{{Source: "10.0.0.7", Listener: "web", By: "admin"}}}
	poison(reflect.ValueOf(&denied), text)
	write("denials", func(w io.Writer) error { return writeDenied(w, &denied, now) })
	most := admin.EndpointWhy{Upstream: "u", Endpoint: "e", Name: "n", Shares: map[string]float64{"endpoint": 1}}
	why := admin.Why{
		Count: 2, Verdict: "endpoint", Advice: "look", Shares: map[string]float64{"endpoint": 1}, Verdicts: map[string]int64{"endpoint": 2}, Most: &most,
		Endpoints: []admin.EndpointWhy{most, {Endpoint: "f"}}, Sessions: []admin.SessionWhy{{Client: "c", Endpoint: "e", Verdict: "endpoint", Why: "slow"}},
	}
	poison(reflect.ValueOf(&why), text)
	write("why", func(w io.Writer) error { return writeWhy(w, &why) })
	plan := admin.Plan{Path: "/p.yaml", Changes: []admin.PlannedChange{{
		What: "listener web: bind", Disposition: admin.Drain, Connections: 2, Kept: 1, Leaves: []admin.Bind{{Bind: "unix:/s", Active: 2}},
	}}}
	poison(reflect.ValueOf(&plan), text)
	write("plan", func(w io.Writer) error {
		return (&planCmd{}).write(&cli.Env{Stdout: w}, plan, "/q.yaml", &config.Config{})
	})
	reloaded := admin.Reloaded{Changes: []string{"a", "b"}, Pending: &rollback.Waiting{RollbackIf: "failures>5"}}
	poison(reflect.ValueOf(&reloaded), text)
	write("reload", func(w io.Writer) error { return writeReloaded(w, reloaded, false) })
	write("complaint", func(w io.Writer) error {
		(&cli.Env{Stderr: w}).PrintError(errors.New(display.Text("bad: " + text)))
		return nil
	})
	write("complaint of several lines", func(w io.Writer) error {
		(&cli.Env{Stderr: w}).PrintError(fmt.Errorf("bad:\n%w", errors.New(strings.ReplaceAll(text, "\n", ""))))
		return nil
	})
	write("refusal", func(w io.Writer) error {
		_ = failed(&cli.Env{Stderr: w}, &admin.Refusal{Line: "bad", Details: strings.ReplaceAll("one"+text, "\n", "") + "\n"})
		return nil
	})
	write("refusal of one line", func(w io.Writer) error {
		env := &cli.Env{Stderr: w}
		env.PrintError(failed(env, &admin.Refusal{Line: "bad " + text}))
		return nil
	})
	write("unknown listener", func(w io.Writer) error {
		env := &cli.Env{Stderr: w}
		env.PrintError(failed(env, (&statusCmd{Listener: "b"}).narrow(&admin.Status{Listeners: []admin.Listener{{Name: text + "a"}}})))
		return nil
	})
	for _, form := range []string{"text", "json"} {
		write("log in "+form, func(w io.Writer) error {
			newLogger(w, form, "info").Info("bad "+text, "name", text, "error", errors.New(text), text, 1)
			return nil
		})
	}
	return made
}

// FuzzHostileTexts: whatever texts files, DNS, clients and endpoints contain, no output moves
// the cursor, and it has as many lines as with other texts.
func FuzzHostileTexts(f *testing.F) {
	for _, text := range []string{
		"", "x", "\n", "a\nb\nc", "\t", "\t\t\t\n", "\x1b[2J", "\x1b]0;owned\a", "\x00", "\x7f", "\u009b31m", "\x9b", "\u2028\u2029", "\u202egnp.exe", "\u2066", "\xff", "\r", "\v\f\b", "日本",
		"' \"\\", "{}", "%s%d%!", "\ufeff", "\u200b",
	} {
		f.Add(text)
	}
	usual := printed(f, "x")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 500 {
			t.Skip("of a length that takes long, in hundreds of places: an input has ten seconds")
		}
		for name, got := range printed(t, text) {
			if moves(got) {
				t.Errorf("%s of %q: %q", name, text, got)
			}
			if lines := strings.Count(got, "\n"); name != "status in JSON" && text != "" && lines != strings.Count(usual[name], "\n") {
				t.Errorf("%s of %q has %d lines: %q", name, text, lines, got)
			}
			var s admin.Status
			if name == "status in JSON" && utf8.ValidString(text) && (json.Unmarshal([]byte(got), &s) != nil || s.Upstreams[0].Endpoints[0].Name != "a"+text) {
				t.Errorf("%s of %q says something else: %q", name, text, got)
			}
		}
	})
}

// TestBytesInLogs: bytes that are not UTF-8 are escaped as \xff in each form of the log, and not replaced.
func TestBytesInLogs(t *testing.T) {
	t.Parallel()

	for form, want := range map[string]string{"text": `name=a\xff`, "json": `"name":"a\\xff","error":"b\\xfe","n":1`} {
		var out strings.Builder
		newLogger(&out, form, "info").Info("client", "name", "a\xff", "error", errors.New("b\xfe"), "n", 1)
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "\ufffd") {
			t.Errorf("%s: %s", form, out.String())
		}
	}
}
