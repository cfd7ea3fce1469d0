package main

import (
	"bytes"
	"io"
	"net"
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
	return serveUntil(t, `"state":"unhealthy"`, `
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
	p := startServing(t, text)
	if _, err := p.stderr.wait(until, 1, p.done); err != nil {
		t.Fatal(err)
	}
	return "unix:" + filepath.Join(p.dir, "admin")
}

// penstockCommand is the program itself, as a process of its own.
func penstockCommand(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	must(t, err)
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

// TestTopOnATerminal runs the view on a pseudo-terminal, with its keys or a signal that ends it, and with and without colours.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()

	bind := topProcess(t)
	for _, env := range [][]string{nil, {"NO_COLOR=yes"}} {
		term := openTerminal(t, 80, 24, penstockCommand(t, env, "top", "--admin", bind))
		term.shows(`OUTAGE  upstream app`)
		term.shows(`connection refused`)
		term.press("2")
		term.shows(`address`)
		if env == nil {
			term.press("q")
		} else if err := term.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		text := term.ends()
		if !strings.Contains(text, alternate) || strings.LastIndex(text, restored) < strings.LastIndex(text, alternate) {
			t.Errorf("%v: the terminal is not left as it was: %q", env, text)
		}
		if coloured := colour.MatchString(text); coloured != (env == nil) {
			t.Errorf("%v: colours: %v, in %q", env, coloured, text)
		}
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
	must(t, cmd.Run())
	outputs := map[string]string{"a pipe": piped.String()}
	outputs["--once"] = openTerminal(t, 80, 24, penstockCommand(t, nil, "top", "--once", "--admin", bind, "--interval", "200ms")).ends()
	outputs["a dumb terminal"] = openTerminal(t, 80, 24, penstockCommand(t, []string{"TERM=dumb"}, "top", "--admin", bind, "--interval", "200ms")).ends()
	for name, text := range outputs {
		if strings.Contains(text, "\x1b") || !regexp.MustCompile(`\napp +one +down +0 `).MatchString(text) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// demoIn runs the demo in this process until it ends by itself, or until its output matches.
func demoIn(t *testing.T, until string, flags ...string) (code int, stdout, stderr string) {
	t.Helper()
	out, complaint, stops, done := newOutput(), newOutput(), make(chan os.Signal, 1), make(chan struct{})
	go func() {
		defer close(done)
		code = run(&cli.Env{Args: append([]string{"demo"}, flags...), Stdout: out, Stderr: complaint, Getenv: os.Getenv, Stops: stops})
	}()
	if until != "" {
		if _, err := out.wait(until, 1, done); err != nil {
			t.Error(err)
		}
		stops <- os.Interrupt
	}
	<-done
	stdout, _ = out.text()
	stderr, _ = complaint.text()
	return code, stdout, stderr
}

func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	code, stdout, stderr := demoIn(t, "", "--seconds", "5")
	if code != cli.ExitOK || stderr != "" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	for _, want := range []string{
		`\n  upstreams:\n`, ` endpoint two is killed`, ` two (down|ejected), `, ` endpoint two is back\n`,
		` penstock endpoint drain app three\n`, ` three draining; `, ` penstock endpoint ready app three\n`,
		`\n  [1-9][0-9]* served \(one [1-9][0-9]*, two [1-9][0-9]*, three [1-9][0-9]*\)`, `\n  \d+ got an answer, but lost their sessions `, `penstock demo --stay`,
	} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestDemoEnds: it stays until it is interrupted, an interrupt before its end is an error, and so is a port that is in use.
func TestDemoEnds(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	for _, c := range []struct {
		until, flags   string
		code           int
		stdout, stderr string // regexps
	}{
		{`penstock endpoint weight --admin unix:/`, "--seconds 1 --stay", cli.ExitOK, `Results of the clients`, `^$`},
		{`clients each second connect to `, "--seconds 3600", cli.ExitError, `connect to`, `^penstock: demo: interrupted\n$`},
		{"", "--listen " + l.Addr().String() + " --seconds 1", cli.ExitError, ``, `^penstock: demo: the load balancer did not start: .*in use`},
	} {
		code, stdout, stderr := demoIn(t, c.until, strings.Fields(c.flags)...)
		if code != c.code || !regexp.MustCompile(c.stdout).MatchString(stdout) || !regexp.MustCompile(c.stderr).MatchString(stderr) || c.code != cli.ExitOK && strings.Contains(stdout, "Results") {
			t.Errorf("%s: exit code %d, %s%s", c.flags, code, stdout, stderr)
		}
	}
}
