package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/sockopt"
)

// demoCmd shows a load balancer at work while its endpoints die, drain and come back.
type demoCmd struct {
	Listen  string  `default:"127.0.0.1:0" placeholder:"ADDR" help:"Let the load balancer listen at this address. (default: a free port of loopback)"`
	Seconds float64 `default:"10" help:"Run for this many seconds. (default: ${default})"`
	Rate    int     `default:"100" help:"Start this many clients each second. (default: ${default})"`
	Stay    bool    `help:"Keep the load balancer running afterwards, until Ctrl-C."`
}

// Validate is called by kong after it has read the flags.
func (c *demoCmd) Validate() error {
	_, err := sockopt.Parse(c.Listen)
	switch {
	case err != nil:
		return cli.Usagef("--listen: %w", err)
	case strings.HasPrefix(c.Listen, "unix:"):
		return cli.Usagef("--listen %s: the clients of the demo use TCP: write host:port", c.Listen)
	case !(c.Seconds >= 1) || c.Seconds > 3600:
		return cli.Usagef("--seconds %v: write 1 to 3600", c.Seconds)
	case c.Rate < 1 || c.Rate > 1000:
		return cli.Usagef("--rate %d: write 1 to 1000", c.Rate)
	}
	return nil
}

// Run runs the demo until its end, or until a signal.
func (c *demoCmd) Run(e *cli.Env) error {
	ctx, stop := untilStopped(e)
	defer stop()
	dir, err := os.MkdirTemp("", "penstock-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := c.run(ctx, e, dir); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// run shows the demo. Its files are in dir.
func (c *demoCmd) run(ctx context.Context, e *cli.Env, dir string) error {
	d := &demo{demoCmd: c, view: &demoView{w: e.Stdout, second: -1}, socket: filepath.Join(dir, "admin.sock")}
	defer d.closeEndpoints()
	if err := d.openEndpoints(); err != nil {
		return err
	}
	file := filepath.Join(dir, "penstock.yaml")
	text := d.config()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	d.view.heading("A load balancer and three endpoints, with this configuration:")
	d.view.print(indent(text))
	balancer := startDemoBalancer(e, file, d.view)
	defer balancer.stop()
	var err error
	if d.admin, err = admin.NewClient("unix:" + d.socket); err != nil {
		return err
	}
	if d.address, err = balancer.address(ctx, d.admin); err != nil {
		return err
	}
	d.view.heading(fmt.Sprintf("%d clients each second connect to %s:", c.Rate, d.address))
	return errors.Join(d.show(ctx), balancer.stop())
}

// demoNames are the names of the endpoints.
var demoNames = []string{"one", "two", "three"}

type demo struct {
	*demoCmd
	view      *demoView
	socket    string // path of the admin socket
	endpoints []*demoEndpoint
	admin     *admin.Client
	address   string // of the listener
}

func (d *demo) openEndpoints() error {
	for i, name := range demoNames {
		// Each has an address of its own, from which nobody connects: a client of 127.0.0.1 could get the port of
		// the endpoint that is dead.
		ep := &demoEndpoint{name: name, address: fmt.Sprintf("127.0.0.%d:0", 2+i)}
		if err := ep.open(); err != nil {
			return err
		}
		d.endpoints = append(d.endpoints, ep)
	}
	return nil
}

func (d *demo) closeEndpoints() {
	for _, ep := range d.endpoints {
		ep.kill()
	}
}

func (d *demo) config() string {
	var endpoints strings.Builder
	for _, ep := range d.endpoints {
		fmt.Fprintf(&endpoints, "      - {name: %s, address: %q}\n", ep.name, ep.address)
	}
	return fmt.Sprintf(`admin: {bind: %q}

listeners:
  - {name: web, bind: %q, upstream: app}

upstreams:
  - name: app
    endpoints:
%s    health_check: {interval: 1s, fast_interval: 250ms}
`, "unix:"+d.socket, d.Listen, endpoints.String())
}

// The events of the demo, as fractions of its duration.
const (
	demoKill   = 0.2
	demoReturn = 0.45
	demoDrain  = 0.6
	demoUndo   = 0.8
)

// A demoStep is an event of the demo.
type demoStep struct {
	at   float64 // fraction of the duration
	text string
	do   func() error
}

func (d *demo) steps() []demoStep {
	change := func(what admin.EndpointVerb) func() error {
		return func() error {
			_, err := d.admin.ChangeEndpoint(context.Background(), &admin.EndpointChange{What: what, Upstream: "app", Endpoint: "three"})
			return err
		}
	}
	two := d.endpoints[1]
	return []demoStep{
		{demoKill, "endpoint two is killed: its sessions are reset, its port is closed", func() error { two.kill(); return nil }},
		{demoReturn, "endpoint two is back", two.open},
		{demoDrain, "penstock endpoint drain app three", change(admin.EndpointDrain)},
		{demoUndo, "penstock endpoint ready app three", change(admin.EndpointReady)},
	}
}

// show runs the events under load, and reports the clients' results.
func (d *demo) show(ctx context.Context) error {
	load := startDemoLoad(d.address, d.Rate)
	defer load.stop()
	begin := time.Now()
	total := time.Duration(d.Seconds * float64(time.Second))
	steps := d.steps()
	ticks := time.NewTicker(demoTick)
	defer ticks.Stop()
	for stays := false; ; {
		select {
		case <-ctx.Done():
			return d.end(load, begin, stays)
		case <-ticks.C:
		}
		now := time.Since(begin)
		for len(steps) > 0 && now.Seconds() >= steps[0].at*d.Seconds {
			d.view.event(now, steps[0].text)
			if err := steps[0].do(); err != nil {
				return err
			}
			steps = steps[1:]
		}
		if now >= total && !stays {
			if !d.Stay {
				return d.end(load, begin, true)
			}
			stays = true
			d.view.printStay(d)
		}
		if s, err := d.admin.Status(ctx); err == nil {
			result := load.result()
			d.view.result(now, statesOf(&s), result.line())
		}
	}
}

// demoTick is how often results are shown.
const demoTick = 250 * time.Millisecond

// end ends the load and reports its result. It returns an error if clients lost sessions other than by the death of
// an endpoint.
func (d *demo) end(load *demoLoad, begin time.Time, complete bool) error {
	result := load.stop()
	if !complete {
		return errors.New("interrupted")
	}
	d.view.printResult(&result, d.Stay)
	if d.Stay {
		return nil // the user may have done anything
	}
	at := begin.Add(time.Duration(demoKill * d.Seconds * float64(time.Second)))
	for _, f := range result.failed {
		if f.time.Before(at) || f.time.After(at.Add(demoTick+time.Second)) {
			return fmt.Errorf("a client lost its session: %w", f.err)
		}
	}
	return nil
}

// reachable returns the address to connect to for a listener's address: loopback if it listens on every address.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// A demoBalancer runs penstock run in this process.
type demoBalancer struct {
	stops chan os.Signal
	once  sync.Once
	done  chan struct{}
	code  int // valid after done
	log   *demoLog
}

// startDemoBalancer starts the load balancer with a configuration. The view prints its warnings. The caller calls
// stop.
func startDemoBalancer(e *cli.Env, file string, view *demoView) *demoBalancer {
	b := &demoBalancer{stops: make(chan os.Signal, 1), done: make(chan struct{}), log: &demoLog{view: view}}
	go func() {
		defer close(b.done)
		b.code = run(&cli.Env{
			Args:   []string{"run", "--config", file, "--log-level", "warn", "--drain-timeout", "2s"},
			Stdout: io.Discard, Stderr: b.log, Getenv: e.Getenv, Stops: b.stops,
		})
	}()
	return b
}

func (b *demoBalancer) address(ctx context.Context, c *admin.Client) (string, error) {
	for {
		s, err := c.Status(ctx)
		if err == nil && len(s.Listeners) > 0 && len(s.Listeners[0].Addresses) > 0 {
			return reachable(s.Listeners[0].Addresses[0]), nil
		}
		select {
		case <-b.done:
			return "", fmt.Errorf("the load balancer did not start: %s", b.log.last())
		case <-ctx.Done():
			return "", errors.New("interrupted")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (b *demoBalancer) stop() error {
	b.once.Do(func() { b.stops <- syscall.SIGTERM })
	<-b.done
	if b.code != cli.ExitOK {
		return fmt.Errorf("the load balancer ended with exit code %d: %s", b.code, b.log.last())
	}
	return nil
}

type demoLog struct {
	view *demoView

	mu      sync.Mutex
	partial []byte
	line    string // the last line
}

// Write takes parts of lines.
func (l *demoLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		line, rest, found := bytes.Cut(l.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.line = withoutTime(string(line))
		l.view.print("        " + l.line + "\n")
		l.partial = rest
	}
}

func (l *demoLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}

func withoutTime(line string) string {
	if strings.HasPrefix(line, "time=") {
		if _, rest, found := strings.Cut(line, " "); found {
			return rest
		}
	}
	return line
}

type demoEndpoint struct {
	name    string
	address string // of the listener; the first open chooses the port

	mu       sync.Mutex
	listener net.Listener // owned; nil while the endpoint is dead
	conns    map[net.Conn]bool
	serving  sync.WaitGroup
}

func (e *demoEndpoint) open() error {
	l, err := net.Listen("tcp", e.address)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listener, e.address, e.conns = l, l.Addr().String(), make(map[net.Conn]bool)
	e.serving.Go(func() { e.accept(l) })
	return nil
}

func (e *demoEndpoint) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		alive := e.listener == l
		if alive {
			e.conns[conn] = true
			e.serving.Go(func() { e.serve(conn) })
		}
		e.mu.Unlock()
		if !alive {
			_ = conn.Close()
		}
	}
}

func (e *demoEndpoint) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if _, err := io.WriteString(conn, e.name+"\n"); err != nil {
			break
		}
	}
	e.mu.Lock()
	delete(e.conns, conn)
	e.mu.Unlock()
}

// kill closes the listener, resets the connections, and waits until they are gone.
func (e *demoEndpoint) kill() {
	e.mu.Lock()
	if e.listener != nil {
		_ = e.listener.Close()
		e.listener = nil
	}
	for conn := range e.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	e.mu.Unlock()
	e.serving.Wait()
}

// A demoResult says how the clients fared.
type demoResult struct {
	served  map[string]int // clients by endpoint
	failed  []demoFailure  // the others
	longest time.Duration  // from the connect to the first answer
}

// A demoFailure is a client that got no answer, or lost its session after the first answer.
type demoFailure struct {
	time     time.Time
	answered bool
	err      error
}

// all returns the number of clients that were served to the end.
func (r *demoResult) all() (n int) {
	for _, served := range r.served {
		n += served
	}
	return n
}

// cut returns the number of clients that lost their sessions, and the number of clients without an answer.
func (r *demoResult) cut() (cut, unanswered int) {
	for _, f := range r.failed {
		if f.answered {
			cut++
		} else {
			unanswered++
		}
	}
	return cut, unanswered
}

// A demoLoad starts clients at a rate. Each asks a few times, and closes.
type demoLoad struct {
	address string
	quit    chan struct{}
	once    sync.Once
	clients sync.WaitGroup

	mu  sync.Mutex
	sum demoResult
}

const (
	demoRequests = 4                     // requests per client
	demoThink    = 25 * time.Millisecond // pause between two requests
	demoPatience = 10 * time.Second      // limit for an answer
)

func startDemoLoad(address string, rate int) *demoLoad {
	l := &demoLoad{address: address, quit: make(chan struct{}), sum: demoResult{served: make(map[string]int)}}
	ticks := time.NewTicker(time.Second / time.Duration(rate))
	l.clients.Go(func() {
		defer ticks.Stop()
		for {
			select {
			case <-l.quit:
				return
			case <-ticks.C:
				l.clients.Go(l.client)
			}
		}
	})
	return l
}

// stop starts no more clients, waits for the running ones, and returns the result.
func (l *demoLoad) stop() demoResult {
	l.once.Do(func() { close(l.quit) })
	l.clients.Wait()
	return l.result()
}

func (l *demoLoad) result() demoResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := demoResult{served: make(map[string]int), failed: l.sum.failed, longest: l.sum.longest}
	for name, n := range l.sum.served {
		r.served[name] = n
	}
	return r
}

func (l *demoLoad) client() {
	begin := time.Now()
	name, wait, err := l.session(begin)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.longest = max(l.sum.longest, wait)
	if err != nil {
		l.sum.failed = append(l.sum.failed, demoFailure{time.Now(), name != "", err})
		return
	}
	l.sum.served[name]++
}

// session asks, and returns the endpoint, and how long the first answer took.
func (l *demoLoad) session(begin time.Time) (name string, wait time.Duration, err error) {
	conn, err := sockopt.Dial(context.Background(), &net.Dialer{Timeout: demoPatience}, "tcp", l.address)
	if err != nil {
		return "", time.Since(begin), err
	}
	defer conn.Close()
	if err := conn.SetDeadline(begin.Add(demoPatience)); err != nil {
		return "", 0, err
	}
	answers := bufio.NewReader(conn)
	for i := range demoRequests {
		if i > 0 {
			time.Sleep(demoThink)
		}
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			return name, wait, err
		}
		line, err := answers.ReadString('\n')
		if i == 0 {
			wait = time.Since(begin)
		}
		line = strings.TrimSpace(line)
		switch {
		case errors.Is(err, io.EOF):
			return name, wait, errors.New("the connection was closed before the answer")
		case err != nil:
			return name, wait, err
		case i > 0 && line != name:
			return name, wait, fmt.Errorf("endpoint %s answered in a session with endpoint %s", line, name)
		}
		name = line
	}
	return name, wait, nil
}

type demoView struct {
	w io.Writer

	mu     sync.Mutex
	second int // of the last result that was written
}

func (v *demoView) print(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprint(v.w, text)
}

func (v *demoView) heading(text string) { v.print("\n" + text + "\n\n") }

func (v *demoView) event(at time.Duration, text string) {
	v.print(fmt.Sprintf("%5.1f s  %s\n", at.Seconds(), text))
}

// result writes the result so far, once a second.
func (v *demoView) result(at time.Duration, states, clients string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := int(at.Seconds()); s != v.second {
		v.second = s
		fmt.Fprintf(v.w, "%5.1f s    %s; %s\n", at.Seconds(), states, clients)
	}
}

func statesOf(s *admin.Status) string {
	var states []string
	for _, u := range s.Upstreams {
		for _, ep := range u.Endpoints {
			states = append(states, fmt.Sprintf("%s %s", ep.Name, ep.State))
		}
	}
	return strings.Join(states, ", ")
}

// line describes the result so far.
func (r *demoResult) line() string {
	cut, unanswered := r.cut()
	return fmt.Sprintf("clients: %d served, %d cut after an answer, %d without one; the longest waited %v", r.all(), cut, unanswered, r.longest.Round(100*time.Microsecond))
}

func (v *demoView) printResult(r *demoResult, stayed bool) {
	var by []string
	for _, name := range demoNames {
		by = append(by, fmt.Sprintf("%s %d", name, r.served[name]))
	}
	v.heading("Results of the clients:")
	v.print(fmt.Sprintf("  %d served (%s), the longest waited %v for its first answer\n", r.all(), strings.Join(by, ", "), r.longest.Round(100*time.Microsecond)))
	cut, unanswered := r.cut()
	v.print(fmt.Sprintf("  %d got an answer, but lost their sessions when the endpoint died\n  %d got no answer at all\n", cut, unanswered))
	if !stayed {
		v.heading("Try next:")
		v.print(`  penstock demo --stay                              keep it running, and change it yourself
  penstock proxy --listen :8080 --to HOST:PORT      forward a port
  penstock run penstock.yaml                        run a load balancer with such a file
`)
	}
}

func (v *demoView) printStay(d *demo) {
	at := "--admin unix:" + d.socket
	v.heading("The load balancer runs until Ctrl-C. Try:")
	v.print(fmt.Sprintf(`  echo hello | nc -N %s
  penstock status %s
  penstock endpoint drain %s app one
  penstock endpoint weight %s app two 3

`, strings.Replace(d.address, ":", " ", 1), at, at, at))
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}
