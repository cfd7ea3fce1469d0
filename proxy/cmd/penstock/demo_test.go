package main

import (
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/cli"
)

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
		`\n  [1-9][0-9]* served \(one [1-9][0-9]*, two [1-9][0-9]*, three [1-9][0-9]*\)`, `\n  \d+ lost their sessions `, `penstock demo --stay`,
	} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestDemoStays(t *testing.T) {
	t.Parallel()

	code, stdout, stderr := demoIn(t, `penstock endpoint weight --admin unix:/`, "--seconds", "1", "--stay")
	if code != cli.ExitOK || stderr != "" || !strings.Contains(stdout, "Results of the clients") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

func TestDemoIsInterrupted(t *testing.T) {
	t.Parallel()

	code, stdout, stderr := demoIn(t, `clients in a second connect to `, "--seconds", "3600")
	if code != cli.ExitError || stderr != "penstock: demo: interrupted\n" || strings.Contains(stdout, "Results") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

func TestDemoFindsItsPortInUse(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	code, _, stderr := demoIn(t, "", "--listen", l.Addr().String(), "--seconds", "1")
	if code != cli.ExitError || !strings.HasPrefix(stderr, "penstock: demo: the load balancer did not start: ") || !strings.Contains(stderr, "in use") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// TestNegativeArgument: a negative number in place of an argument is refused as one, and not as a flag.
func TestNegativeArgument(t *testing.T) {
	t.Parallel()

	if code, _, stderr := call("endpoint", "weight", "app", "x", "-3"); code != cli.ExitUsage || stderr != "penstock: -3 is negative: write 0 or more (see: penstock endpoint weight --help)\n" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestDemoRefusesWrongFlags(t *testing.T) {
	t.Parallel()

	for args, want := range map[string]string{
		"--seconds 0":         "write 1 to 3600",
		"--seconds NaN":       "write 1 to 3600",
		"--rate 0":            "write 1 to 1000",
		"--listen unix:/s":    "the demo's clients use TCP",
		"--listen foo":        "--listen",
		"--seconds 2 forever": "unexpected argument",
	} {
		if code, _, stderr := call(append([]string{"demo"}, strings.Fields(args)...)...); code != cli.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}
