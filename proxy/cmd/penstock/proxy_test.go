package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/relay"
)

func stageOf(t *testing.T) (s *stage, variables map[string]string) {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	s, variables = newStage(), map[string]string{}
	s.workDir = sockets.Dir(t)
	s.setenv = func(name, value string) { variables[name] = value }
	t.Cleanup(s.clear)
	must(t, os.Mkdir(s.workDir+"/.bin", 0o755))
	must(t, os.Symlink(program, s.workDir+"/.bin/penstock"))
	return s, variables
}

func greet(s *stage, address string, n int) error {
	for i := range n {
		name := fmt.Sprint(i)
		if err := errors.Join(s.dial(name, address), s.client([]string{name, "send", "hello"})); err != nil {
			return err
		}
	}
	return nil
}

// part waits until each client has its answer, or was reset, and closes it. It returns the
// number of answers.
func part(t *testing.T, s *stage) int {
	t.Helper()
	var answered atomic.Int64
	var clients sync.WaitGroup
	for _, conn := range s.clients {
		clients.Go(func() {
			defer conn.Close()
			got := make([]byte, 5)
			_, err := io.ReadFull(conn, got)
			switch {
			case err == nil && string(got) == "hello":
				answered.Add(1)
			case !errors.Is(err, syscall.ECONNRESET):
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	clients.Wait()
	return int(answered.Load())
}

// withFewDescriptors returns a running proxy, p, with further flags, whose limit is lowered to 64
// descriptors while it runs.
func withFewDescriptors(t *testing.T, flags ...string) (s *stage, p *program, variables map[string]string) {
	t.Helper()
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("needs prlimit of util-linux: ", err)
	}
	s, variables = stageOf(t)
	must(t, s.origin([]string{"ORIGIN"}))
	must(t, s.start(append([]string{"p", "proxy", "--listen", "127.0.0.1:0", "--to", variables["ORIGIN"], "--log", "json"}, flags...)))
	p = s.processes["p"]
	if out, err := exec.Command(prlimit, "--pid", strconv.Itoa(p.cmd.Process.Pid), "--nofile=64:").CombinedOutput(); err != nil {
		t.Fatalf("prlimit: %v: %s", err, out)
	}
	return s, p, variables
}

// Descriptors run out although there should have been enough: RLIMIT_NOFILE is lowered under
// the running program. Accepting pauses, is logged, and resumes; no client waits for ever, and
// afterwards every client is served.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()

	s, p, variables := withFewDescriptors(t, "--admin", "unix:a.sock")
	const clients = 80
	must(t, greet(s, variables["p_ADDR"], clients))
	must(t, s.stderrHas([]string{"p", `"level":"WARN","msg":"accepting is paused".*too many open files`}))
	answered := part(t, s)
	must(t, s.stderrHas([]string{"p", `"msg":"accepting has resumed"`}))
	must(t, s.status([]string{"a.sock", `"problems":.*"kind":"local_faults".*accepting failed [0-9]+ times? within the last minute`}))
	must(t, greet(s, variables["p_ADDR"], 1))
	if part(t, &stage{clients: map[string]net.Conn{"0": s.clients["0"]}}) != 1 {
		t.Error("a client is not answered after it was over")
	}
	must(t, s.signal([]string{"p", "TERM"}))
	must(t, s.ended([]string{"p", "0"}))
	text, _ := p.stdout.text()
	want := fmt.Sprintf(`{"connections":{"active":0,"accepted":%d,"refused":%d}`, clients+1, clients-answered)
	if !strings.HasPrefix(text, want) {
		t.Errorf("the summary is %s, want %s", text, want)
	}
	if used := p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime(); used > 3*time.Second {
		t.Errorf("it took %v of CPU time to wait", used)
	}
}

// A proxy that is stopped has more clients in its queue than descriptors: they are served as
// descriptors become free.
func TestDrainWithFewDescriptors(t *testing.T) {
	t.Parallel()

	s, p, variables := withFewDescriptors(t)
	const clients = 80
	must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	must(t, greet(s, variables["p_ADDR"], clients))
	must(t, s.signal([]string{"p", "TERM"}))
	must(t, p.cmd.Process.Signal(syscall.SIGCONT))
	if answered := part(t, s); answered != clients {
		t.Errorf("%d of %d clients were answered", answered, clients)
	}
	must(t, s.ended([]string{"p", "0"}))
	text, _ := p.stdout.text()
	if want := fmt.Sprintf(`{"connections":{"active":0,"accepted":%d,"refused":0}`, clients); !strings.HasPrefix(text, want) {
		t.Errorf("the summary is %s, want %s", text, want)
	}
}

// The reader of the log and of the summaries goes away: connections go on.
func TestBrokenPipesCostNoConnection(t *testing.T) {
	t.Parallel()

	s, variables := stageOf(t)
	must(t, s.origin([]string{"ORIGIN"}))
	must(t, s.start([]string{"p", "proxy", "--listen", "127.0.0.1:0", "--to", variables["ORIGIN"], "--log-level", "debug"}))
	must(t, s.client([]string{"a", "dial", variables["p_ADDR"]}))
	must(t, s.client([]string{"a", "send", "before"}))
	must(t, s.client([]string{"a", "expect", "before"}))
	p := s.processes["p"]
	p.stdout.abandon()
	p.stderr.abandon()
	for range 3 {
		must(t, s.signal([]string{"p", "USR1"}))
		must(t, s.client([]string{"b", "dial", variables["p_ADDR"]}))
		must(t, s.client([]string{"b", "send", "hello"}))
		must(t, s.client([]string{"b", "expect", "hello"}))
		must(t, s.client([]string{"b", "finish"}))
	}
	must(t, s.client([]string{"a", "send", "after"}))
	must(t, s.client([]string{"a", "expect", "after"}))
	must(t, s.client([]string{"a", "finish"}))
	must(t, s.signal([]string{"p", "TERM"}))
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != cli.ExitOK {
		t.Errorf("the program ends with %v", p.cmd.ProcessState)
	}
}

func parsed(t *testing.T, line string) *proxyCmd {
	t.Helper()
	var c commands
	k, err := kong.New(&c)
	if err == nil {
		_, err = k.Parse(append([]string{"proxy"}, strings.Fields(line)...))
	}
	must(t, err)
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
		must(t, err)
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
		must(t, err)
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
	must(t, err)
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

// TestFlagsHaveTheDefaultsOfAFile: without flags the timeouts and socket options of clients are those of a listener without keys.
func TestFlagsHaveTheDefaultsOfAFile(t *testing.T) {
	t.Parallel()

	text, err := parsed(t, "--listen :0 --to 10.0.0.5:80").write()
	must(t, err)
	of := func(text []byte) (config.Timeouts, config.Socket) {
		cfg, problems := config.Parse("p.yaml", text, noVariables)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		l := cfg.Listeners[0]
		l.Timeouts.Pos, l.Socket.Pos = config.Pos{}, config.Pos{}
		return l.Timeouts, l.Socket
	}
	timeouts, socket := of(text.bytes())
	wantTimeouts, wantSocket := of([]byte("listeners: [{name: l, bind: ':0', upstream: u}]\nupstreams: [{name: u, endpoints: ['10.0.0.5:80']}]"))
	if timeouts != wantTimeouts || socket != wantSocket {
		t.Errorf("%+v, %+v; of a file %+v, %+v", timeouts, socket, wantTimeouts, wantSocket)
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
	must(t, os.WriteFile(file, []byte(text), 0o600))
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
