package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/relay"
)

// parsed returns the command with a command line.
func parsed(t *testing.T, line string) *proxyCmd {
	t.Helper()
	var c commands
	k, err := kong.New(&c)
	if err == nil {
		_, err = k.Parse(append([]string{"proxy"}, strings.Fields(line)...))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &c.Proxy
}

// TestServerFlags: the flags' values reach the server's options, 0 as off.
func TestServerFlags(t *testing.T) {
	t.Parallel()

	for line, want := range map[string]server.Options{
		"--tail-delay 2ms --gather 300us --max-pipe-size 256KiB --drain-timeout 7s --engine copy": {
			TailDelay: 2 * time.Millisecond, Gather: 300 * time.Microsecond, MaxPipeSize: 256 << 10, DrainTimeout: 7 * time.Second,
			Engine: relay.EngineCopy,
		},
		"--tail-delay 0 --gather 0 --max-pipe-size 64KiB --drain-timeout 0 --loops 2 --busy-poll 50us --no-sched-batch": {
			TailDelay: -1, Gather: -1, MaxPipeSize: 64 << 10, Loops: 2, BusyPoll: 50 * time.Microsecond, KeepPolicy: true,
		},
	} {
		got, err := parsed(t, line).options()
		if err != nil {
			t.Fatal(err)
		}
		got.MaxConnections = 0 // that of descriptors
		if *got != want {
			t.Errorf("%s: %+v, want %+v", line, *got, want)
		}
	}
}

// TestPathsOfFlags: whatever characters the path of a flag has, it arrives as it was written. One that is
// not UTF-8 is refused.
func TestPathsOfFlags(t *testing.T) {
	t.Parallel()

	for _, path := range []string{
		"/run/a,b", "/run/a]b", "/run/a}b: c", "/run/{a}#b", "/run/a #b", "/run/${HOME}", "/run/$$a$b", `/run/"a"'b'\n`, "/run/- a", "/run/*&!|>%@`", "/run/ä😀",
	} {
		c := proxyCmd{Listen: []string{"unix:" + path + "1"}, To: []string{"unix:" + path + "2"}}
		c.Admin = "unix:" + path + "3"
		text, err := c.write()
		if err != nil {
			t.Fatal(err)
		}
		cfg, problems := config.Parse(text.name, text.bytes(), noVariables)
		if len(problems) > 0 {
			t.Errorf("%s: %v, of\n%s", path, problems, text.bytes())
			continue
		}
		got := []string{cfg.Listeners[0].Bind[0].String(), cfg.Upstreams[0].Endpoints[0].Address.String(), cfg.Admin.Bind.String()}
		if want := []string{c.Listen[0], c.To[0], c.Admin}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, set := range []func(*proxyCmd){
		func(c *proxyCmd) { c.Listen[0] = "unix:/run/\xff" }, func(c *proxyCmd) { c.To[0] = "unix:/run/\xff" }, func(c *proxyCmd) { c.Admin = "unix:/run/\xff" },
	} {
		c := proxyCmd{Listen: []string{":0"}, To: []string{"127.0.0.1:1"}}
		set(&c)
		if _, err := c.write(); err == nil || !strings.Contains(err.Error(), "write printable characters") {
			t.Errorf("%q: %v", c.Listen, err)
		}
	}
}

// TestFlagsAreAConfiguration: each flag has written its key.
func TestFlagsAreAConfiguration(t *testing.T) {
	t.Parallel()

	c := parsed(t, "--listen :0 --listen unix:/run/p.sock?mode=0660 --to 10.0.0.5:80 --to [2001:db8::1]:80 --connect-timeout 1s --idle-timeout 2s"+
		" --half-close-timeout 0 --user-timeout 4s --max-connections 5 --admin unix:/run/a.sock")
	text, err := c.write()
	if err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Parse(text.name, text.bytes(), noVariables)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	l, u := cfg.Listeners[0], cfg.Upstreams[0]
	if got := fmt.Sprintln(l.Name, l.Upstream, l.Bind, u.Name, u.Endpoints[0].Address, u.Endpoints[1].Address, cfg.Admin.Bind); got != "proxy proxy [:0 unix:/run/p.sock?mode=0660] proxy 10.0.0.5:80 [2001:db8::1]:80 unix:/run/a.sock\n" {
		t.Error(got)
	}
	if l.Timeouts.Connect != time.Second || l.Timeouts.Idle != 2*time.Second || l.Timeouts.HalfClose != 0 || l.Socket.UserTimeout != 4*time.Second {
		t.Errorf("timeouts %+v, %+v", l.Timeouts, l.Socket)
	}
	if cfg.Limits.Connections != 5 || u.HealthCheck != nil || u.OutlierDetection != nil || u.CircuitBreaker != nil || len(cfg.Files) > 0 {
		t.Errorf("limits %+v, health check %v, outlier detection %v, circuit breaker %v, files %q", cfg.Limits, u.HealthCheck, u.OutlierDetection, u.CircuitBreaker, cfg.Files)
	}
}

// TestPrintConfig: the configuration that is printed is that of penstock run.
func TestPrintConfig(t *testing.T) {
	t.Parallel()

	code, text, stderr := call("proxy", "--listen", ":0", "--to", "10.0.0.5:80", "--print-config")
	if code != cli.ExitOK || stderr != "" {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	file := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := call("check", file); code != cli.ExitOK || !strings.Contains(stdout, "is good: 1 listener, 1 upstream, 1 endpoint") {
		t.Errorf("exit code %d, %q, %q, of\n%s", code, stdout, stderr, text)
	}
}

// TestAdviceIsTaken: the suggestions for a bare number pass the checks that follow.
func TestAdviceIsTaken(t *testing.T) {
	t.Parallel()

	for _, flag := range []string{"--busy-poll", "--tail-delay", "--gather"} {
		for _, number := range []string{"1", "50", "400", "1000"} {
			args := []string{"proxy", "--listen", "unix:/dev/null/s", "--to", "127.0.0.1:1", flag}
			code, _, text := call(append(args, number)...)
			_, advice, _ := strings.Cut(text, "write ")
			advice, _, _ = strings.Cut(advice, " ")
			if code != cli.ExitUsage || !strings.HasPrefix(advice, number) {
				t.Errorf("%s %s: exit code %d, %q", flag, number, code, text)
			}
			// It gets as far as a failure to listen.
			if code, _, text := call(append(args, advice)...); code != cli.ExitError {
				t.Errorf("%s %s, as advised: exit code %d, %q", flag, advice, code, text)
			}
		}
	}
}

// A lookout calls look when the program logs that it listens, and then stops it.
type lookout struct {
	look  func()
	stops chan os.Signal
}

func (l *lookout) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("msg=listening")) {
		l.look()
		l.stops <- syscall.SIGTERM
	}
	return len(p), nil
}

// TestSpareProcs: there is one P more than loops while the proxy runs, unless the environment
// sets the number or there are enough. Afterwards the number is restored.
func TestSpareProcs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	for _, c := range []struct {
		loops, env string
		want       int
	}{
		{"3", "", 4}, {"5", "", 6}, {"2", "", 3}, {"1", "", 3}, {"3", "3", 3}, {"5", "3", 3},
	} {
		during := 0
		out := &lookout{look: func() { during = runtime.GOMAXPROCS(0) }, stops: make(chan os.Signal, 1)}
		code := run(&cli.Env{
			Args:   []string{"proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--loops", c.loops},
			Stdout: io.Discard, Stderr: out, Stops: out.stops,
			Getenv: func(name string) string { return map[string]string{"GOMAXPROCS": c.env}[name] },
		})
		if code != cli.ExitOK || during != c.want {
			t.Errorf("--loops %s, GOMAXPROCS=%s: exit code %d, %d Ps, want %d", c.loops, c.env, code, during, c.want)
		}
		if n := runtime.GOMAXPROCS(0); n != 3 {
			t.Fatalf("--loops %s, GOMAXPROCS=%s: %d Ps afterwards, want 3", c.loops, c.env, n)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]cli.Size{"65536": 65536, "64KiB": 64 << 10, "1MiB": 1 << 20, "0": 0, "2047MiB": 2047 << 20} {
		var got cli.Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "1M", "1.5MiB", "-1", "2048MiB", "2147483648", "1 MiB", "1KiBKiB"} {
		var got cli.Size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d, want an error", text, got)
		}
	}
}
