package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/alecthomas/kong"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/server"
)

// A paperBalancer serves no client, and records its configuration. It replaces a load balancer
// in the tests of changes.
type paperBalancer struct {
	admin.Balancer // nil: methods not tested here

	mu       sync.Mutex
	cfg      *config.Config
	had      []weak.Pointer[config.Config] // that were applied
	applied  int
	bad      error // of applying
	applying func()
	looking  func() // called by Status
	failures int64
	outage   bool
	draining bool
	cut      chan struct{}
	drains   chan struct{} // closed: draining takes no time
}

func (b *paperBalancer) Serve(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-b.cut:
		return server.ErrCut
	}
	b.mu.Lock()
	b.draining = true
	b.mu.Unlock()
	select {
	case <-b.drains:
		return nil
	case <-b.cut:
		return server.ErrCut
	}
}

func (b *paperBalancer) Apply(_ context.Context, cfg *config.Config) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.applying != nil {
		b.applying()
	}
	if b.bad == nil {
		b.cfg = cfg
		b.had = append(b.had, weak.Make(cfg))
		b.applied++
	}
	return b.bad
}

// bounds returns 5 connections: 2 for each of a listener's addresses, and the rest for the
// last.
func bounds(l *config.Listener) (list []admin.Bind) {
	left := int64(5)
	for i, b := range l.Bind {
		n := left
		if i+1 < len(l.Bind) {
			n = min(left, 2)
		}
		left -= n
		list = append(list, admin.Bind{Bind: b.String(), Active: n})
	}
	return list
}

// Status reports 5 connections of each listener and 3 of each endpoint.
func (b *paperBalancer) Status() admin.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looking != nil {
		b.looking()
	}
	s := admin.Status{State: admin.Serving, Counters: map[string]int64{"failures": b.failures, "refused": 0}}
	if b.draining {
		s.State = admin.Draining
	}
	for _, l := range b.cfg.Listeners {
		s.Listeners = append(s.Listeners, admin.Listener{Name: l.Name, Connections: admin.Connections{Active: 5}, Binds: bounds(l), Routes: []admin.Route{{To: map[string]float64{l.Upstream: 100}}}})
		s.Connections.Active += 5
	}
	for _, u := range b.cfg.Upstreams {
		up := admin.Upstream{Name: u.Name}
		if b.outage {
			up.Outage = &admin.UpstreamOutage{Since: time.Now()}
		}
		for _, e := range u.Endpoints {
			up.Endpoints = append(up.Endpoints, admin.Endpoint{Name: e.Name, Active: 3})
			up.Active += 3
		}
		s.Upstreams = append(s.Upstreams, up)
	}
	return s
}

func (b *paperBalancer) Counter(name string) (int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures, name == "failures"
}

func (b *paperBalancer) fail(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures += n
}

func (b *paperBalancer) Why(context.Context, admin.WhyQuery) (w admin.Why, err error) { return w, nil }

func (b *paperBalancer) ChangeEndpoint(*admin.EndpointChange, string) (done admin.EndpointChanged, err error) {
	return done, errors.New("no turn")
}

func (b *paperBalancer) Summary() admin.Summary { return admin.Summary{} }

func (b *paperBalancer) ReopenLogs()             {}
func (b *paperBalancer) Metrics(*metrics.Sample) {}

func (b *paperBalancer) DrainingUnder(*config.Config) map[string]server.Draining {
	return nil
}
func (b *paperBalancer) Awaiting(*config.Config) []string { return nil }

func (b *paperBalancer) LiveUnder(*config.Config) []admin.LiveChange { return nil }

func (b *paperBalancer) AppliedLive() (ended, restored []admin.LiveChange) {
	return []admin.LiveChange{}, []admin.LiveChange{}
}

func (b *paperBalancer) Cut() { close(b.cut) }

func (b *paperBalancer) Alive(context.Context) error { return nil }

func (b *paperBalancer) listeners() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, l := range b.cfg.Listeners {
		names = append(names, l.Name)
	}
	return strings.Join(names, " ")
}

// A runRig is penstock run in this process, with a paperBalancer.
type runRig struct {
	t        *testing.T
	balancer *paperBalancer
	opens    chan struct{} // nil: at once; otherwise the balancer opens when there is one to receive
	dir      string
	file     string // the configuration
	stderr   *output
	stops    chan os.Signal
	hangups  chan os.Signal
	getenv   func(name string) string
	done     chan struct{}
	code     int // after done
}

// startRun starts it with a configuration of those listeners, and waits until it has begun.
func startRun(t *testing.T, args []string, listeners ...string) *runRig {
	t.Helper()
	return startRunIn(t, t.TempDir(), args, listeners...)
}

func startRunIn(t *testing.T, dir string, args []string, listeners ...string) *runRig {
	t.Helper()
	r := newRun(t, dir, listeners...)
	go r.run(append([]string{"run", "--config", r.file, "--log", "json"}, args...))
	r.says("starting")
	t.Cleanup(func() { r.end(cli.ExitOK) })
	return r
}

// newRun is one that is not started yet.
func newRun(t *testing.T, dir string, listeners ...string) *runRig {
	t.Helper()
	r := &runRig{
		t: t, balancer: &paperBalancer{cut: make(chan struct{}), drains: make(chan struct{})}, dir: dir,
		stderr: newOutput(), stops: make(chan os.Signal, 2), hangups: make(chan os.Signal, 1), getenv: os.Getenv, done: make(chan struct{}),
	}
	close(r.balancer.drains)
	r.file = filepath.Join(r.dir, "penstock.yaml")
	r.write(listeners...)
	return r
}

func (r *runRig) run(args []string) {
	defer close(r.done)
	e := &cli.Env{
		Args: args, Stdout: newOutput(), Stderr: r.stderr, Getenv: r.getenv, Stops: r.stops,
		Reloads: func() <-chan os.Signal { return r.hangups },
	}
	var c commands
	k, err := kong.New(&c)
	if err == nil {
		_, err = k.Parse(args)
	}
	if err != nil {
		r.t.Error(err)
		return
	}
	c.Run.open = func(_ context.Context, cfg *config.Config, _ server.Options) (loadBalancer, error) {
		if r.opens != nil {
			<-r.opens
		}
		r.balancer.cfg = cfg
		return r.balancer, nil
	}
	if code := cli.ExitCode(cli.ExitOK); errors.As(c.Run.Run(e), &code) {
		r.code = int(code)
	}
}

func (r *runRig) write(listeners ...string) {
	r.t.Helper()
	r.writeText(r.text("admin.sock", listeners...))
}

func (r *runRig) writeText(text string) {
	r.t.Helper()
	must(r.t, errors.Join(os.WriteFile(r.file+".new", []byte(text), 0o644), os.Rename(r.file+".new", r.file)))
}

func (r *runRig) text(socket string, listeners ...string) string {
	var text bytes.Buffer
	fmt.Fprintf(&text, "admin: {bind: \"unix:%s\"}\nupstreams: [{name: up, endpoints: [\"127.0.0.1:1\"]}]\nlisteners:\n", filepath.Join(r.dir, socket))
	for i, name := range listeners {
		fmt.Fprintf(&text, "  - {name: %s, bind: \"127.0.0.1:%d\", upstream: up}\n", name, 2000+i)
	}
	return text.String()
}

// says waits until n log lines match, by default one.
func (r *runRig) says(expr string, n ...int) {
	r.t.Helper()
	if _, err := r.stderr.wait(expr, append(n, 1)[0], r.done); err != nil {
		r.t.Fatal(err)
	}
}

func (r *runRig) has(listeners string) {
	r.t.Helper()
	if got := r.balancer.listeners(); got != listeners {
		r.t.Errorf("the listeners are %q, want %q", got, listeners)
	}
}

func (r *runRig) tells(code int, args ...string) (stdout, stderr string) {
	r.t.Helper()
	got, stdout, stderr := call(args...)
	if got != code {
		r.t.Errorf("penstock %s: exit code %d, want %d: %s%s", strings.Join(args, " "), got, code, stdout, stderr)
	}
	return stdout, stderr
}

// end drains it, unless it has ended, and checks the exit code.
func (r *runRig) end(code int) {
	r.t.Helper()
	select {
	case r.stops <- syscall.SIGTERM:
	case <-r.done:
	}
	<-r.done
	if r.code != code {
		text, _ := r.stderr.text()
		r.t.Errorf("exit code %d, want %d: %s", r.code, code, text)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
