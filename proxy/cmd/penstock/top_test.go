package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/penstock/penstock/proxy/cli"
)

// topProcess runs a load balancer in this process, one of whose endpoints is down, and returns its admin address.
func topProcess(t *testing.T) (bind string) {
	t.Helper()
	return serveUntil(t, `state=unhealthy`, `
listeners:
  - {name: web, bind: "127.0.0.1:0", upstream: app}
upstreams:
  - name: app
    endpoints:
      - {name: one, address: "127.0.0.1:1"}
    health_check: {interval: 1s, fast_interval: 100ms}
`)
}

// serveUntil runs a load balancer in this process until its log has until, and returns its admin address.
func serveUntil(t *testing.T, until, text string) (bind string) {
	t.Helper()
	dir := t.TempDir()
	file, bind := filepath.Join(dir, "penstock.yaml"), "unix:"+filepath.Join(dir, "admin.sock")
	text = `admin: {bind: "` + bind + `"}` + text
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stops, done := newOutput(), make(chan os.Signal, 1), make(chan struct{})
	go func() {
		defer close(done)
		run(&cli.Env{Args: []string{"run", "--config", file}, Stdout: io.Discard, Stderr: out, Getenv: os.Getenv, Stops: stops})
	}()
	t.Cleanup(func() {
		stops <- os.Interrupt
		<-done
	})
	if _, err := out.wait(until, 1, done); err != nil {
		t.Fatal(err)
	}
	return bind
}

// penstockCommand is the program itself, as a process of its own.
func penstockCommand(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &exec.Cmd{Path: path, Args: append([]string{"penstock"}, args...), Env: append([]string{"TERM=xterm-256color", "PATH=" + os.Getenv("PATH")}, env...)}
}

// A terminal is a pseudo-terminal on which a command runs, and all that the command has written.
type terminal struct {
	t      *testing.T
	file   *os.File // owned
	output *output
	done   chan struct{} // the command has closed it
	cmd    *exec.Cmd
}

func openTerminal(t *testing.T, width, height uint16, cmd *exec.Cmd) *terminal {
	t.Helper()
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: height, Cols: width})
	if err != nil {
		t.Skipf("no pseudo-terminal can be opened: %v", err)
	}
	term := &terminal{t, file, newOutput(), make(chan struct{}), cmd}
	go func() {
		defer close(term.done)
		_, _ = io.Copy(term.output, file) // EIO at the end
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-term.done
		file.Close()
	})
	return term
}

// shows waits for a text.
func (term *terminal) shows(pattern string) {
	term.t.Helper()
	if _, err := term.output.wait(pattern, 1, term.done); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) press(keys string) {
	term.t.Helper()
	if _, err := io.WriteString(term.file, keys); err != nil {
		term.t.Fatal(err)
	}
}

// ends waits for the end of the command, and returns everything that it wrote.
func (term *terminal) ends() string {
	term.t.Helper()
	<-term.done
	if err := term.cmd.Wait(); err != nil {
		text, _ := term.output.text()
		term.t.Errorf("%v: %v: %q", term.cmd.Args, err, text)
	}
	text, _ := term.output.text()
	return text
}

// colour is a style with a colour (ECMA-48, SGR 30 to 48 and 90 to 107).
var colour = regexp.MustCompile("\x1b\\[([0-9]+;)*(3[0-8]|4[0-8]|9[0-7]|10[0-7])(;[0-9]+)*m")

// The alternate screen of xterm, which leaves the lines of the terminal as they were.
const alternate, restored = "\x1b[?1049h", "\x1b[?1049l"

// TestTopOnATerminal runs the view on a pseudo-terminal, with its keys, and with and without colours.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()

	bind := topProcess(t)
	for _, env := range [][]string{nil, {"NO_COLOR=yes"}} {
		term := openTerminal(t, 80, 24, penstockCommand(t, env, "top", "--admin", bind))
		term.shows(`OUTAGE  upstream app`)
		term.shows(`connection refused`)
		term.press("2")
		term.shows(`address`)
		term.press("q")
		text := term.ends()
		if !strings.Contains(text, alternate) || strings.LastIndex(text, restored) < strings.LastIndex(text, alternate) {
			t.Errorf("%v: the terminal is not left as it was: %q", env, text)
		}
		if coloured := colour.MatchString(text); coloured != (env == nil) {
			t.Errorf("%v: colours: %v, in %q", env, coloured, text)
		}
	}
}

// TestTopIsStopped by signals, and leaves the terminal as it was.
func TestTopIsStopped(t *testing.T) {
	t.Parallel()

	term := openTerminal(t, 120, 40, penstockCommand(t, nil, "top", "--admin", topProcess(t)))
	term.shows(`one +down`)
	if err := term.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if text := term.ends(); !strings.Contains(text, restored) {
		t.Errorf("%q", text)
	}
}

// TestTopWithoutATerminal writes one picture as text: into a pipe, by --once, and on a terminal that cannot move its
// cursor.
func TestTopWithoutATerminal(t *testing.T) {
	t.Parallel()

	bind := topProcess(t)
	var piped bytes.Buffer
	cmd := penstockCommand(t, nil, "top", "--admin", bind, "--interval", "200ms")
	cmd.Stdout = &piped
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	outputs := map[string]string{"a pipe": piped.String()}
	outputs["--once"] = openTerminal(t, 80, 24, penstockCommand(t, nil, "top", "--once", "--admin", bind, "--interval", "200ms")).ends()
	outputs["a dumb terminal"] = openTerminal(t, 80, 24, penstockCommand(t, []string{"TERM=dumb"}, "top", "--admin", bind, "--interval", "200ms")).ends()
	for name, text := range outputs {
		if strings.Contains(text, "\x1b") || !regexp.MustCompile(`\napp +one +down +0 `).MatchString(text) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestDemoOnATerminal shows the view, and leaves the course and the results on the terminal.
func TestDemoOnATerminal(t *testing.T) {
	t.Parallel()

	term := openTerminal(t, 100, 30, penstockCommand(t, nil, "demo", "--seconds", "3"))
	term.shows(`penstock demo`)
	term.shows(`three `)
	text := term.ends()
	_, after, ok := strings.Cut(text, restored)
	if !ok || !strings.Contains(after, "endpoint two is killed") || !strings.Contains(after, "Results of the clients:") || strings.Contains(after, alternate) {
		t.Errorf("%q", text)
	}
}

func TestTopRefusesWrongFlags(t *testing.T) {
	t.Parallel()

	for args, want := range map[string]string{
		"--interval 1ms":          "write 200ms to 1m",
		"--interval 2m":           "write 200ms to 1m",
		"--admin unix:/nowhere":   "nothing runs there",
		"--admin 127.0.0.1:1 a b": "unexpected argument",
	} {
		if code, _, stderr := call(append([]string{"top"}, strings.Fields(args)...)...); code == cli.ExitOK || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}
