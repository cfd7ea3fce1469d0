package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
	"pgregory.net/rapid"
)

// TestWhatIsCheckedStarts: penstock run starts any configuration that passes penstock check,
// and takes it over by a reload. The exceptions depend on the moment: ports that are taken
// meanwhile, and addresses, protocols and devices that this machine does not have, or a lane that this user may not open.
func TestWhatIsCheckedStarts(t *testing.T) {
	t.Parallel()

	dir := sockets.Dir(t)
	cert, key := certificate.New(t, "a.example.test", "localhost")
	for name, text := range map[string]string{
		"cert.pem": cert, "key.pem": key, "sorry.txt": "sorry\n", "secret": "s3cret\n", "endpoints.yaml": "['127.0.0.1:1']\n",
		"more.yaml": "limits: {connections: 5}\n", "filter.wasm": allowing(),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	started, drawn := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		g := &grammar{t: rt, dir: dir}
		first, second := g.text(), g.text()
		drawn++
		for tries := 1; ; tries++ {
			c := &checked{rt: rt, dir: dir, ports: freePorts(t)}
			if !c.passes(first) {
				return
			}
			err := c.runs(first, second)
			switch {
			case err == nil:
				started++
				return
			case errors.Is(err, errAbsent):
				return
			case !errors.Is(err, errTaken) || tries == 5: // five times other ports
				rt.Fatalf("it passes penstock check, and then: %v\n%s\nand then\n%s", err, c.named(first), c.named(second))
			}
		}
	})
	if t.Logf("%d of %d were started", started, drawn); started*12 < drawn && !testing.Short() { // twenty say little
		t.Errorf("only %d of %d configurations were started: what is drawn is of little use", started, drawn)
	}
}

func allowing() string {
	m := &wasmfile.Module{Pages: 1}
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	i32 := string(rune(wasmfile.I32))
	m.Func("proxy_on_new_connection", i32, i32, 0, wasmfile.Const(0))
	for _, name := range []string{"proxy_on_downstream_data", "proxy_on_upstream_data"} { // so that it rewrites as well
		m.Func(name, i32+i32+i32, i32, 0, wasmfile.Const(0))
	}
	return string(m.Bytes())
}

func freePorts(t *testing.T) (ports []string) {
	t.Helper()
	for range 3 {
		ln, err := net.Listen("tcp", ":0")
		must(t, err)
		defer ln.Close() // later, so that the next one is another
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

// Errors that depend on the moment. A unix socket's path is the test's own, and is never
// taken.
var (
	errTaken  = errors.New("bind: address already in use")
	errAbsent = errors.New("this machine has no such address, device or group, or not for this user")

	absent = regexp.MustCompile(`bind: cannot assign requested address|address family not supported|there is no group|` +
		`lane: require: (lane.devices: there is no network device .*|lane: .*operation not permitted)`)
)

// A checked is a test of configurations that are checked and then run.
type checked struct {
	rt    *rapid.T
	dir   string
	ports []string
}

// named replaces PORT0 and so on by ports.
func (c *checked) named(text string) string {
	for i, port := range c.ports {
		text = strings.ReplaceAll(text, fmt.Sprintf("PORT%d", i), port)
	}
	return text
}

func (c *checked) put(text string) (path string) {
	path = filepath.Join(c.dir, "checked.yaml")
	if err := errors.Join(os.WriteFile(path+".new", []byte(c.named(text)), 0o600), os.Rename(path+".new", path)); err != nil {
		c.rt.Fatal(err)
	}
	return path
}

func (c *checked) passes(text string) bool {
	e := &cli.Env{Args: []string{"check", c.put(text)}, Stdout: newOutput(), Stderr: newOutput(), Getenv: func(string) string { return "set" }}
	return run(e) == cli.ExitOK
}

// runs makes penstock run serve the first one, and then the second one if that passes.
func (c *checked) runs(first, second string) (err error) {
	p := &serving{stderr: newOutput(), stops: make(chan os.Signal, 1), hangups: make(chan os.Signal, 1), done: make(chan struct{})}
	next := c.passes(second)
	go p.run("run", c.put(first), "--log", "json", "--drain-timeout", "0")
	defer func() {
		p.stops <- syscall.SIGTERM
		if <-p.done; err == nil && p.code != cli.ExitOK {
			err = fmt.Errorf("it ends with exit code %d", p.code)
		}
	}()
	if err := p.says(`"msg":"starting"`); err != nil || !next {
		return err
	}
	c.put(second)
	p.hangups <- syscall.SIGHUP
	if err := p.says(`"configuration in force","generation":2|"the reload was refused.*"`); !errors.Is(err, errTaken) {
		return err
	}
	return nil // the running one may have the address itself, for something else
}

// A serving is penstock run in this process.
type serving struct {
	stderr         *output
	stops, hangups chan os.Signal
	done           chan struct{}
	code           int // after done
}

func (p *serving) run(args ...string) {
	defer close(p.done)
	p.code = run(&cli.Env{
		Args: args, Stdout: newOutput(), Stderr: p.stderr, Getenv: func(string) string { return "set" }, Stops: p.stops,
		Reloads: func() <-chan os.Signal { return p.hangups },
	})
}

// says waits for a log line. If the line cannot come because of the moment, the error wraps
// errTaken or errAbsent.
func (p *serving) says(expr string) error {
	found, err := p.stderr.wait(expr, 1, p.done)
	text, _ := p.stderr.text()
	switch {
	case err == nil && !strings.Contains(found[0][0], "refused"):
		return nil
	case strings.Contains(text, errTaken.Error()):
		return fmt.Errorf("%w: %s", errTaken, text)
	case absent.MatchString(text):
		return fmt.Errorf("%w: %s", errAbsent, text)
	}
	return errors.New(text)
}

// TestNamesThatDoNotResolve: check warns of the endpoints' names that have no address, or of which that cannot be found
// out without a name server. Many names are one line, and the file is good anyway.
func TestNamesThatDoNotResolve(t *testing.T) {
	t.Parallel()
	var endpoints []string
	for i := range 500 {
		endpoints = append(endpoints, fmt.Sprintf("%q", fmt.Sprintf("nosuch%03d.invalid:80", i)))
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	put := func(list ...string) (stderr string) {
		text := "listeners: [{name: l, bind: '127.0.0.1:1', upstream: u}]\nupstreams: [{name: u, endpoints: [" + strings.Join(list, ", ") + "]}]\n"
		must(t, os.WriteFile(file, []byte(text), 0o600))
		code, _, stderr := call("check", file)
		if code != cli.ExitOK {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		return stderr
	}
	if stderr := put("'127.0.0.1:80'", "'[::1]:80'", "'localhost:80'", "'unix:/tmp/nosuch.invalid'"); strings.Contains(stderr, "names") {
		t.Errorf("without a name that does not resolve: %s", stderr)
	}
	stderr := put(append(endpoints, "'127.0.0.1:80'")...)
	lines := regexp.MustCompile(`warning: names of endpoints (do not resolve here|could not be looked up here, and may not resolve) \((\d+)\): nosuch\d+\.invalid.*`).FindAllStringSubmatch(stderr, -1)
	sum := 0
	for _, line := range lines {
		var n int
		if _, err := fmt.Sscan(line[2], &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum != 500 || strings.Count(stderr, "nosuch") > 40 || !strings.Contains(stderr, "and 495 more") && len(lines) == 1 {
		t.Errorf("%d names in %d lines: %s", sum, len(lines), stderr)
	}
}

// TestListensWhereNothingIsSeen: a socket in a directory that this user may not look into is none that listens. Root
// looks into all.
func TestListensWhereNothingIsSeen(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	socket := filepath.Join(dir, "a.sock")
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	if !listens(socket) || listens(filepath.Join(dir, "b.sock")) {
		t.Error("the socket that is there does not count, or the other one does")
	}
	must(t, os.Chmod(dir, 0))
	defer os.Chmod(dir, 0o700)
	if seen := listens(filepath.Join(dir, "b.sock")); seen {
		t.Error("a socket that nobody has seen listens")
	}
}

// TestDefaultConfig: the first one that exists, even if it is invalid.
func TestDefaultConfig(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.yaml"), filepath.Join(dir, "second.yaml")
	is := func(want string) {
		t.Helper()
		if got := defaultConfig([]string{first, second}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	is("")
	must(t, os.WriteFile(second, nil, 0o600))
	is(second)
	must(t, os.WriteFile(first, nil, 0))
	is(first)
}
