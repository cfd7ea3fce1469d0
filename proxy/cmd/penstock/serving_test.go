package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/hung"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
)

type apiDocument struct {
	Paths map[string]map[string]struct {
		Parameters []struct {
			Name   string
			Schema *jsonschema.Schema
		}
		Responses map[string]struct {
			Content map[string]struct{ Schema *jsonschema.Schema }
		}
	}
	Components struct {
		Schemas map[string]*jsonschema.Schema
	}
}

// strict has each object of a schema allow no other members than those it names.
func strict(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil && s.AdditionalProperties == nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	strict(s.Items)
	if len(s.Properties) == 0 {
		strict(s.AdditionalProperties)
	}
	for _, p := range s.Properties {
		strict(p)
	}
}

// schema is that of an answer, with no other members than it names; nil if the answer is not JSON, or is the
// document.
func (d *apiDocument) schema(t *testing.T, method, path string) *jsonschema.Resolved {
	t.Helper()
	media, ok := d.Paths[path][method].Responses["200"].Content["application/json"]
	if !ok || media.Schema.Ref == "" {
		return nil
	}
	s := d.Components.Schemas[strings.TrimPrefix(media.Schema.Ref, "#/components/schemas/")]
	if s == nil {
		t.Fatalf("%s is not in the document", media.Schema.Ref)
	}
	resolved, err := s.CloneSchemas().Resolve(nil)
	must(t, err)
	return resolved
}

// TestAnswersAsDocumented: the answers of a running process with sessions are as docs/openapi.json has them,
// for each request, with no member that it has not.
func TestAnswersAsDocumented(t *testing.T) {
	t.Parallel()

	var d apiDocument
	text, err := os.ReadFile("../../../docs/openapi.json")
	must(t, err)
	must(t, json.Unmarshal(text, &d))
	for _, s := range d.Components.Schemas {
		strict(s)
	}
	p := startServing(t, `
listeners:
- {name: web, bind: "unix:%[1]s/web", routes: [{split: [{upstream: shop, percent: 90}, {upstream: next, percent: 10}]}]}
- {name: other, bind: "unix:%[1]s/other", upstream: shop}
upstreams:
- {name: shop, endpoints: [{address: %[2]q, name: a}, {address: %[2]q, name: b, weight: 2}, {address: "unix:%[1]s/nobody", name: gone}]}
- {name: next, endpoints: [%[2]q]}
`)
	for i := range 5 {
		c, err := net.Dial("unix", filepath.Join(p.dir, []string{"web", "other"}[i%2]))
		must(t, err)
		defer c.Close()
		fmt.Fprintln(c, "hello")
		if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
	}
	countersAsDocumented(t, p, &d)
	text, err = os.ReadFile(p.file)
	if err == nil { // so that a reload changes something
		err = os.WriteFile(p.file, append(text, "\nlimits: {per_second: 100000}\n"...), 0o600)
	}
	must(t, err)
	asked := make(map[string]bool)
	for _, target := range []string{
		"get /livez", "get /readyz", "get /v1/process", "get /", "get /v1/sources", "get /v1/mirrors", "post /v1/mirrors/reset", "post /v1/deny/add?source=unix&for=1h", "get /v1/denied", "post /v1/deny/remove?source=unix",
		"get /v1/sessions?sort=age&top=2", "post /v1/sessions/end?older=1h", "post /v1/sessions/keep",
		"get /v1/status", "get /v1/sessions", "get /v1/why?for=0s", "get /v1/why?for=10ms&listener=web", "get /v1/generations", "get /v1/openapi.json", "get /metrics", "get /v1/profile?seconds=1",
		"post /v1/plan", "post /v1/reload?confirm=1m&rollback_if=failures>1000", "get /v1/status", "get /v1/generations", "post /v1/confirm", "post /v1/reload", "post /v1/rollback",
		"post /v1/endpoint/weight?upstream=shop&endpoint=b&weight=5", "post /v1/endpoint/drain?upstream=shop&endpoint=a", "post /v1/endpoint/ready?upstream=shop&endpoint=a",
		"post /v1/split/set?listener=web&route=0&percent=shop:50&percent=next:50", "post /v1/listener/drain?listener=other", "post /v1/listener/ready?listener=other",
		"post /v1/endpoint/add?upstream=shop&address=127.0.0.1:1&weight=0", "post /v1/endpoint/remove?upstream=shop&endpoint=127.0.0.1:1", "post /v1/endpoint/maint?upstream=shop&endpoint=b", "get /v1/status", "post /v1/plan?config=" + p.file,
		"post /v1/process/drain", "get /v1/status", "get /v1/sessions", "post /v1/leave",
	} {
		method, target, _ := strings.Cut(target, " ")
		path, _, _ := strings.Cut(target, "?")
		asked[method+" "+path] = true
		body := p.ask(t, strings.ToUpper(method), target)
		schema := d.schema(t, method, path)
		if schema == nil {
			continue
		}
		var answer any
		if err := json.Unmarshal(body, &answer); err != nil {
			t.Errorf("%s: %v", target, err)
		} else if err := schema.Validate(answer); err != nil {
			t.Errorf("%s: %v\n%s", target, err, body)
		}
	}
	asked["get /v1/events"] = true // has no end, see TestEventsAreTheStatus in proxy/admin
	for _, verb := range []string{"on", "off", "return", "flush"} {
		asked["post /v1/lane/"+verb] = true // take privileges, see TestLaneSwitch and TestLaneReturns in proxy/server
	}
	asked["get /page/"] = true // the files of the page, see proxy/test/page
	for path, methods := range d.Paths {
		for method := range methods {
			if !asked[method+" "+path] {
				t.Errorf("%s %s was not asked", method, path)
			}
		}
	}
}

// countersAsDocumented checks that a bound of a reload may have each counter of the status, and no other one.
func countersAsDocumented(t *testing.T, p *served, d *apiDocument) {
	t.Helper()
	var st admin.Status
	must(t, json.Unmarshal(p.ask(t, http.MethodGet, "/v1/status"), &st))
	if got := slices.Sorted(maps.Keys(st.Counters)); !slices.Equal(got, admin.CounterNames) {
		t.Errorf("the status has the counters %q, and the document %q", got, admin.CounterNames)
	}
	for _, q := range d.Paths["/v1/reload"]["post"].Parameters {
		if q.Name != "rollback_if" {
			continue
		}
		of := regexp.MustCompile(q.Schema.Pattern)
		for _, name := range admin.CounterNames {
			if !of.MatchString(name+">50") || !of.MatchString(name+">=1") || of.MatchString("x"+name+">50") {
				t.Errorf("%s: %s", name, of)
			}
		}
		return
	}
	t.Error("the document has no rollback_if")
}

// A served is a load balancer in this process, with real sessions.
type served struct {
	dir, file string
	stops     chan os.Signal
	done      chan struct{}
	stderr    *output
	client    *http.Client
}

// startServing starts penstock run with a configuration, in which %[1]s is its directory and %[2]q an
// endpoint that echoes, and with those flags.
func startServing(t *testing.T, configuration string, args ...string) *served {
	t.Helper()
	p := &served{dir: t.TempDir(), stops: make(chan os.Signal, 2), done: make(chan struct{}), stderr: newOutput()}
	p.file = filepath.Join(p.dir, "penstock.yaml")
	echo := sockets.Server(t, sockets.Echo)
	if !strings.Contains(configuration, "admin:") {
		configuration = "admin: {bind: \"unix:%[1]s/admin\"}\n" + configuration
	}
	configuration = fmt.Sprintf(configuration, p.dir, echo)
	must(t, os.WriteFile(p.file, []byte(configuration), 0o600))
	go func() {
		defer close(p.done)
		e := &cli.Env{Args: append([]string{"run", "--config", p.file, "--log", "json", "--drain-timeout", "1m"}, args...), Stdout: newOutput(), Stderr: p.stderr, Getenv: os.Getenv, Stops: p.stops, Reloads: func() <-chan os.Signal { return nil }}
		if code := run(e); code != cli.ExitOK && code != cli.ExitError {
			t.Errorf("exit code %d", code)
		}
	}()
	if _, err := p.stderr.wait("starting", 1, p.done); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 { // the second one does not wait for sessions
			select {
			case p.stops <- syscall.SIGTERM:
			case <-p.done:
			}
		}
		<-p.done
	})
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, "admin"))
	}}
	p.client = &http.Client{Transport: transport, Timeout: time.Minute}
	return p
}

// ask makes a request that succeeds, and returns the answer.
func (p *served) ask(t *testing.T, method, target string) []byte {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+target, nil)
	must(t, err)
	q.Header.Set(admin.Header, "1")
	answer, err := p.client.Do(q)
	must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%s %s: %s, %v: %s", method, target, answer.Status, err, body)
	}
	return body
}

const oneListener = `
listeners: [{name: web, bind: "unix:%[1]s/web", upstream: shop}]
upstreams: [{name: shop, endpoints: [%[2]q]}]
`

func (p *served) probe(t *testing.T) int {
	t.Helper()
	answer, err := p.client.Get("http://localhost/readyz")
	must(t, err)
	answer.Body.Close()
	return answer.StatusCode
}

func (p *served) echoes(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(p.dir, "web"))
	must(t, err)
	fmt.Fprintln(c, "hello")
	if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *served) status(t *testing.T) (s admin.Status) {
	t.Helper()
	must(t, json.Unmarshal(p.ask(t, http.MethodGet, "/v1/status"), &s))
	return s
}

// TestReadinessFailsFirst: at the end of the process GET /readyz fails, and for --drain-delay clients are accepted
// anyway. A second signal ends the process without the rest of that time.
func TestReadinessFailsFirst(t *testing.T) {
	t.Parallel()

	for name, stop := range map[string]func(p *served){
		"a signal":      func(p *served) { p.stops <- syscall.SIGTERM },
		"process drain": func(p *served) { p.ask(t, http.MethodPost, "/v1/process/drain") },
	} {
		p := startServing(t, oneListener, "--drain-delay", "1h")
		if code := p.probe(t); code != http.StatusOK {
			t.Errorf("%s: before: %d", name, code)
		}
		stop(p)
		if _, err := p.stderr.wait("no longer ready", 1, p.done); err != nil {
			t.Fatal(err)
		}
		if code := p.probe(t); code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", name, code)
		}
		p.echoes(t).Close()
		if s := p.status(t); s.State != admin.Serving || s.DrainStarts.Before(time.Now().Add(50*time.Minute)) || len(s.Problems) == 0 || s.Problems[0].Kind != "not_ready" {
			t.Errorf("%s: %s, starts at %v, %v", name, s.State, s.DrainStarts, s.Problems)
		}
	}
}

// TestDrainSaysWhatItWaitsFor: penstock process drain prints when, and how many sessions it waits for, and whether the
// process drained before. A second one is not logged.
func TestDrainSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		flags       []string
		one, second string
	}{
		"a limit": {
			nil, `^the process drains: it waits for 1 session, until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n$`,
			`^the process drains already: it waits for 1 session, until \d{4}.*\n$`,
		},
		"no limit": {
			[]string{"--drain-timeout", "0"},
			`^the process drains: it waits for 1 session, however long they take\n$`,
			`^the process drains already: it waits for 1 session, however long they take\n$`,
		},
		"a delay": {
			[]string{"--drain-delay", "1h"},
			`^the process drains at \d{4}.*, and accepts clients until then: it has 1 session\n$`,
			`^the process was asked earlier to drain: it drains at \d{4}.*, and accepts clients until then: it has 1 session\n$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := startServing(t, oneListener, tc.flags...)
			defer p.echoes(t).Close()
			for _, want := range []string{tc.one, tc.second} {
				code, out, stderr := call("process", "drain", "--config", p.file)
				if code != cli.ExitOK || !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("exit code %d, %q, %s, want %s", code, out, stderr, want)
				}
			}
			p.ask(t, http.MethodPost, "/v1/process/drain")
			log, _ := p.stderr.text()
			if n := strings.Count(log, `"what":"drain"`); n != 1 {
				t.Errorf("logged %d times", n)
			}
		})
	}
}

// TestDrainAfterTheDelay: after --drain-delay the process drains: it accepts no more, and its sessions go on.
func TestDrainAfterTheDelay(t *testing.T) {
	t.Parallel()

	p := startServing(t, oneListener, "--drain-delay", "50ms")
	c := p.echoes(t)
	defer c.Close()
	p.stops <- syscall.SIGTERM
	if _, err := p.stderr.wait(`"msg":"draining"`, 1, p.done); err != nil {
		t.Fatal(err)
	}
	if s := p.status(t); s.State != admin.Draining || !s.DrainStarts.IsZero() {
		t.Errorf("%s, starts at %v", s.State, s.DrainStarts)
	}
	if code := p.probe(t); code != http.StatusServiceUnavailable {
		t.Errorf("while it drains: %d", code)
	}
	fmt.Fprintln(c, "again")
	if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
		t.Error(err)
	}
	c.Close()
	<-p.done
}

// TestDrainWhileTheStateFileHangs: the drain begins although the state file cannot be left to the next process, and the process ends.
func TestDrainWhileTheStateFileHangs(t *testing.T) {
	t.Parallel()

	dir := hung.Dir(t)
	p := startServing(t, fmt.Sprintf("state_file: %q\n", filepath.Join(dir, "state"))+oneListener)
	hung.Mount(t, dir)
	p.ask(t, http.MethodPost, "/v1/deny/add?source=192.0.2.1&for=1h")
	p.stops <- syscall.SIGTERM
	<-p.done
	log, _ := p.stderr.text()
	if drained, left := strings.Index(log, `"msg":"drained"`), strings.Index(log, `"msg":"the next restart will lose changes by hand"`); drained < 0 || left < drained {
		t.Error(log)
	}
}

// unit is a socket unit of systemd: it keeps its listening socket while services come and
// go.
func unit(t *testing.T) (socket *os.File, address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	socket, err = ln.(*net.TCPListener).File()
	must(t, err)
	t.Cleanup(func() { socket.Close() })
	return socket, ln.Addr().String()
}

// activated runs the program on a configuration, as systemd would. It returns a function that
// sends it a signal, its log, and a function that drains it, or kills it if that takes too
// long.
func activated(t *testing.T, config string, socket *os.File, notify string) (signal func(os.Signal), log *output, stop func()) {
	t.Helper()
	cmd, log := activation(t, config, socket, notify)
	must(t, cmd.Start())
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			text, _ := log.text()
			t.Errorf("%v\n%s", err, text)
		}
	}
	t.Cleanup(stop)
	return func(s os.Signal) { _ = cmd.Process.Signal(s) }, log, stop
}

// activation is the command of [activated], and its log.
func activation(t *testing.T, config string, socket *os.File, notify string) (cmd *exec.Cmd, log *output) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	name := filepath.Join(t.TempDir(), "penstock") // see TestMain
	must(t, os.Symlink(exe, name))
	ctx, cancel := context.WithTimeout(context.Background(), condition.Patience)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, "sh", "-c", `LISTEN_PID=$$ exec "$0" run --config "$1"`, name, config)
	cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES=web", "NOTIFY_SOCKET="+notify)
	cmd.ExtraFiles = []*os.File{socket}
	log = newOutput()
	cmd.Stderr = log
	return cmd, log
}

// TestAddressOfAPassedSocket: the error of an address that systemd's socket has names the socket, and no other process.
func TestAddressOfAPassedSocket(t *testing.T) {
	t.Parallel()

	socket, address := unit(t)
	config := filepath.Join(t.TempDir(), "penstock.yaml")
	_, port, _ := net.SplitHostPort(address)
	text := fmt.Sprintf("listeners: [{name: web, bind: \":%s\", upstream: u}]\nupstreams: [{name: u, endpoints: [\"127.0.0.1:9\"]}]\n", port)
	must(t, os.WriteFile(config, []byte(text), 0o600))
	cmd, log := activation(t, config, socket, "")
	err := cmd.Run()
	said, _ := log.text()
	if err == nil || !strings.Contains(said, "write systemd:web in place of the address") || strings.Contains(said, "ss -tanp") {
		t.Errorf("%v: %s", err, said)
	}
}

// TestSocketsOutliveTheProcess: clients that come while no process serves systemd's socket
// wait for the next one. That process reports to systemd when it is ready, with its status.
func TestSocketsOutliveTheProcess(t *testing.T) {
	t.Parallel()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, ln, func(c net.Conn) {
		fmt.Fprint(c, "served\n")
		sockets.Echo(c)
	})
	dir := t.TempDir()
	config := filepath.Join(dir, "penstock.yaml")
	text := fmt.Sprintf("listeners: [{name: web, bind: \"systemd:web\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]\n", ln.Addr())
	must(t, os.WriteFile(config, []byte(text), 0o600))
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	must(t, err)
	defer told.Close()
	hears := func(want string) {
		t.Helper()
		b := make([]byte, 4096)
		for {
			_ = told.SetReadDeadline(time.Now().Add(condition.Patience))
			n, err := told.Read(b)
			if err != nil {
				t.Fatalf("%s: %v", want, err)
			}
			if strings.Contains(string(b[:n]), want) {
				return
			}
		}
	}
	socket, address := unit(t)
	for range 2 {
		early, err := net.Dial("tcp", address) // before there is a process
		must(t, err)
		defer early.Close()
		_, _, stop := activated(t, config, socket, told.LocalAddr().String())
		hears("READY=1")
		_ = early.SetDeadline(time.Now().Add(condition.Patience))
		if got, err := bufio.NewReader(early).ReadString('\n'); got != "served\n" {
			t.Errorf("%q, %v", got, err)
		}
		_ = early.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, early)
		stop()
		hears("STOPPING=1")
	}
}

// TestTwoProcessesOfASocket: while a process drains, another one with the same socket of systemd serves new clients.
// The socket is blocking meanwhile, as systemd makes it whenever it starts a service with it.
func TestTwoProcessesOfASocket(t *testing.T) {
	t.Parallel()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, ln, sockets.Echo)
	socket, address := unit(t)
	config := filepath.Join(t.TempDir(), "penstock.yaml")
	text := fmt.Sprintf("admin: off\nlisteners: [{name: web, bind: \"systemd:web\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]\n", ln.Addr())
	must(t, os.WriteFile(config, []byte(text), 0o600))
	dial := func() (c net.Conn, echoes func()) {
		t.Helper()
		c, err := net.Dial("tcp", address)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		return c, func() {
			t.Helper()
			if _, err := io.WriteString(c, "x"); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Error(err)
			}
		}
	}
	signal, log, _ := activated(t, config, socket, "")
	old, oldEchoes := dial()
	oldEchoes()
	must(t, syscall.SetNonblock(int(socket.Fd()), false))
	signal(syscall.SIGTERM)
	condition.Await(t, "it drains", func() bool { text, _ := log.text(); return strings.Contains(text, "draining") })
	_, nextLog, _ := activated(t, config, socket, "")
	condition.Await(t, "the next one serves", func() bool { text, _ := nextLog.text(); return strings.Contains(text, "starting") })
	next, nextEchoes := dial()
	nextEchoes()
	oldEchoes()
	old.Close()
	next.Close()
	condition.Await(t, "it has drained", func() bool { text, _ := log.text(); return strings.Contains(text, "drained") })
}

// TestPassedSocketsOutliveAFailedReload: a passed socket that is first named by a reload that
// fails is there for the next one; and a socket that a reload gave up serves after the next one.
func TestPassedSocketsOutliveAFailedReload(t *testing.T) {
	t.Parallel()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, ln, func(c net.Conn) { fmt.Fprint(c, "served\n") })
	dir := t.TempDir()
	config := filepath.Join(dir, "penstock.yaml")
	write := func(binds string) {
		t.Helper()
		text := fmt.Sprintf("listeners: [{name: web, bind: [%s], upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]\n", binds, ln.Addr())
		must(t, os.WriteFile(config, []byte(text), 0o600))
	}
	write(`"127.0.0.1:0"`)
	socket, address := unit(t)
	signal, log, _ := activated(t, config, socket, "")
	logs := func(expr string) {
		t.Helper()
		if _, err := log.wait(expr, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	logs(`systemd passed sockets that no listener uses`)
	logs(`msg=starting`)
	for i := range 2 {
		write(`"systemd:web", "unix:` + dir + `/no/such/directory"`)
		signal(syscall.SIGHUP)
		if _, err := log.wait(`the reload was refused`, i+1, nil); err != nil {
			t.Fatal(err)
		}
	}
	write(`"systemd:web"`)
	signal(syscall.SIGHUP)
	logs(`generation=2`)
	served := func() {
		t.Helper()
		c, err := net.Dial("tcp", address)
		must(t, err)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		if got, err := bufio.NewReader(c).ReadString('\n'); got != "served\n" {
			t.Errorf("%q, %v", got, err)
		}
	}
	served()
	write(`"127.0.0.1:0"`)
	signal(syscall.SIGHUP)
	logs(`generation=3`)
	write(`"systemd:web"`)
	signal(syscall.SIGHUP)
	logs(`generation=4`)
	served()
}

// TestCommandsOverTCP: commands show the credentials of the configuration, of their flags, or of the environment.
func TestCommandsOverTCP(t *testing.T) {
	t.Parallel()

	dir, at, plainAt := t.TempDir(), "127.0.0.1:"+sockets.Port(t), "127.0.0.1:"+sockets.Port(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	cert, key := certificate.New(t, "penstock.test")
	opsCert, opsKey := certificate.New(t, "ops")
	ca, key := write("a.pem", cert), write("a.key", key)
	opsCert, opsKey = write("c.pem", opsCert), write("c.key", opsKey)
	read, change := write("read", "fedcba9876543210\n"), write("change", "0123456789abcdef\n")
	secured := startServing(t, fmt.Sprintf("admin: {bind: %q, read_token: 'file:%s', change_token: 'file:%s', tls: {cert: %q, key: %q, client_ca: %q}}\n", at, read, change, ca, key, opsCert)+oneListener)
	plain := startServing(t, fmt.Sprintf("admin: {bind: %q, change_token: 'file:%s'}\n", plainAt, change)+oneListener)
	for _, x := range []struct {
		code int
		want string // of the log, or of the complaint
		args []string
	}{
		{cli.ExitOK, `"by":"certificate=own"`, []string{"--config", secured.file}},
		{cli.ExitOK, `"by":"token=change"`, []string{"--config", plain.file}},
		{cli.ExitError, "the process answers only over TLS: write --ca FILE", []string{"--admin", at}},
		{cli.ExitError, "a token is needed: write --token-file FILE", []string{"--admin", plainAt}},
		{cli.ExitError, "a token or a certificate is needed", []string{"--admin", at, "--ca", ca}},
		{cli.ExitError, "this token may read, but not change", []string{"--admin", at, "--ca", ca, "--token-file", read}},
		{cli.ExitOK, `"by":"token=change"`, []string{"--admin", at, "--ca", ca, "--token-file", change}},
		{cli.ExitOK, `"by":"certificate=CN=ops"`, []string{"--admin", at, "--ca", ca, "--cert", opsCert, "--key", opsKey}},
		{cli.ExitError, "certificate", []string{"--admin", at, "--ca", opsCert, "--token-file", change}},
		{cli.ExitUsage, "a certificate and its key go together", []string{"--admin", at, "--ca", ca, "--cert", opsCert}},
		{cli.ExitUsage, "a client certificate needs TLS: write --ca FILE", []string{"--admin", at, "--cert", opsCert, "--key", opsKey}},
		{cli.ExitUsage, "192.0.2.1:9 is another machine", []string{"--admin", "192.0.2.1:9", "--token-file", change}},
		{cli.ExitUsage, "--token-file: open ", []string{"--admin", at, "--ca", ca, "--token-file", filepath.Join(dir, "none")}},
	} {
		of := secured
		if x.args[1] == plain.file {
			of = plain
		}
		before, _ := of.stderr.text()
		code, _, complaint := call(append([]string{"reload"}, x.args...)...)
		said := complaint
		if x.code == cli.ExitOK && code == x.code { // the log comes after the answer
			if _, err := of.stderr.wait(regexp.QuoteMeta(x.want), 1+strings.Count(before, x.want), of.done); err != nil {
				t.Errorf("%q: %v", x.args, err)
			}
			said = x.want
		}
		after, _ := of.stderr.text()
		if code != x.code || !strings.Contains(said, x.want) {
			t.Errorf("%q: %d, %s%s", x.args, code, complaint, after[len(before):])
		}
	}
	variables := map[string]string{"PENSTOCK_ADMIN": at, "PENSTOCK_CA": ca, "PENSTOCK_TOKEN_FILE": read}
	var out, complaint strings.Builder
	e := &cli.Env{Args: []string{"status"}, Stdout: &out, Stderr: &complaint, Getenv: func(name string) string { return variables[name] }}
	if code := run(e); code != cli.ExitOK || !strings.Contains(out.String(), "listener     web") {
		t.Errorf("by the environment: %d, %s%s", code, &out, &complaint)
	}
}

// TestPrivateDirectoryWithoutVariables: where no variable names a directory, the last one is made for this user
// alone, or used if it is this user's. Another file in its place is not, nor a link, which somebody else may
// turn.
func TestPrivateDirectoryWithoutVariables(t *testing.T) {
	t.Parallel()

	env := func(string) (string, bool) { return "", false }
	dir := filepath.Join(t.TempDir(), "penstock")
	for range 2 {
		if got, err := privateDirectory(env, dir); got != dir || err != nil {
			t.Fatal(got, err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	link, file := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "file")
	must(t, errors.Join(os.Symlink(dir, link), os.WriteFile(file, nil, 0o600)))
	others := []string{link, file, filepath.Join(dir, "not", "there")}
	if os.Geteuid() != 0 {
		others = append(others, "/")
	}
	for _, last := range others {
		if got, err := privateDirectory(env, last); !errors.Is(err, errNoDirectory) {
			t.Errorf("%s: %q, %v", last, got, err)
		}
	}
}

// TestDirectoriesOfSockets: a directory that is a link, that others may write to, or that is another user's has no
// private socket.
func TestDirectoriesOfSockets(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	env := func(path string) func(string) (string, bool) {
		return func(name string) (string, bool) { return path, name == "RUNTIME_DIRECTORY" }
	}
	made := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must(t, errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)))
		return path
	}
	own, link, file := made("own", 0o755), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	must(t, errors.Join(os.Symlink(own, link), os.WriteFile(file, nil, 0o600)))
	bad := []string{link, file, made("group", 0o770), made("all", 0o707), made("sticky", 0o777|os.ModeSticky)}
	if os.Geteuid() == 0 {
		other := made("other", 0o700)
		must(t, os.Chown(other, 12345, 12345))
		bad = append(bad, other)
	}
	for _, path := range bad {
		if bind, err := privateAddress(env(path), "/etc/p.yaml"); !errors.Is(err, errDirectory) {
			t.Errorf("%s: %s, %v", path, bind, err)
		}
	}
	if _, err := privateAddress(env(own), "/etc/p.yaml"); err != nil {
		t.Error(err)
	}
	if _, err := privateAddress(env(filepath.Join(dir, "none")), "/etc/p.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// TestAdminSetting: the admin socket that is suggested is one that the user can have: in a directory of the user, and
// at a path that no other process has.
func TestAdminSetting(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	service, home := filepath.Join(dir, "run"), filepath.Join(dir, "home")
	path := filepath.Join(home, "p.yaml")
	must(t, errors.Join(os.Mkdir(service, 0o700), os.Mkdir(home, 0o700)))
	at := func(dir, name string) string { return fmt.Sprintf(adminSection, "unix:"+filepath.Join(dir, name)) }
	says := func(want string, uid int) {
		t.Helper()
		if got := adminFor([]string{service}, path, uid, adminSection); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	says(at(service, "admin.sock"), os.Geteuid())
	says(`admin: {bind: "unix:/PATH"} with a path in a directory that user 12345 owns`, 12345)
	ln, err := net.Listen("unix", filepath.Join(service, "admin.sock"))
	must(t, err)
	defer ln.Close()
	says(at(service, socketName(path))+" (another process listens at unix:"+service+"/admin.sock)", os.Geteuid())
	must(t, os.Chmod(service, 0o777)) // another user could replace the socket
	says(at(home, "admin.sock"), os.Geteuid())
	if os.Geteuid() == 0 {
		must(t, os.Chown(home, 12345, 12345))
		says(at(home, "admin.sock"), 12345)
	}
}

// TestOwnersOfFoundSockets: a user whom root has given a directory may serve there, and nobody whose directory is
// anywhere else.
func TestOwnersOfFoundSockets(t *testing.T) {
	t.Parallel()

	if os.Geteuid() != 0 {
		t.Skip("only root may give a directory away")
	}
	dir := t.TempDir()
	for name, x := range map[string]struct {
		parent, mode os.FileMode
		of           int
		want         uint32
	}{
		"a service":       {0o755, 0o750, 0, 12345},
		"open to others":  {0o755, 0o770, 0, 0},
		"below others":    {0o777, 0o750, 0, 0},
		"below another's": {0o755, 0o750, 12346, 0},
	} {
		parent := filepath.Join(dir, name)
		service := filepath.Join(parent, "penstock")
		err := errors.Join(os.MkdirAll(service, 0o700), os.Chown(service, 12345, 12345), os.Chown(parent, x.of, 0), os.Chmod(service, x.mode), os.Chmod(parent, x.parent))
		must(t, err)
		if as := privateCredentials("unix:" + filepath.Join(service, "a-01234567.sock")); !as.Known || as.Owner != x.want {
			t.Errorf("%s: %+v", name, as)
		}
	}
}

// implicit makes a directory the current one, with a configuration that no command line names.
func implicit(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	before := defaultConfigs
	t.Cleanup(func() { defaultConfigs = before })
	defaultConfigs = []string{filepath.Join(t.TempDir(), "penstock.yaml"), before[1]}
	must(t, os.WriteFile(before[1], []byte(text), 0o600))
}

// contacts closes the first connection to a listener, and sends whether there was one before the end of the listener.
func contacts(l net.Listener) <-chan bool {
	made := make(chan bool, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			conn.Close()
		}
		made <- err == nil
	}()
	return made
}

// TestImplicitFile: a file of the current directory that nobody has named leads to no address of TCP, has no
// variable and no secret read, and completion is silent about it.
func TestImplicitFile(t *testing.T) {
	cert, key := certificate.New(t, "127.0.0.1")
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("0123456789abcdef\n"), 0o600))
	for _, file := range []string{
		"admin: {bind: %q, change_token: '${SECRET}'}\n",
		"admin: {bind: %q, read_token: 'file:" + secret + "'}\n",
		"admin: {bind: %q, change_token: '${SECRET}', tls: {cert: a.pem, key: a.key}}\n",
		"x: [\nadmin: {bind: %q, change_token: '${SECRET}'}\n",
	} {
		for _, args := range [][]string{{"status"}, {"reload"}, {"top", "--once"}, {"__complete", "--", "status", "--listener", ""}} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			asked := contacts(l)
			implicit(t, fmt.Sprintf(file, l.Addr()))
			for name, text := range map[string]string{"a.pem": cert, "a.key": key} {
				must(t, os.WriteFile(name, []byte(text), 0o600))
			}
			var out, complaint strings.Builder
			env := map[string]string{"SECRET": "0123456789abcdef", "PENSTOCK_TOKEN_FILE": secret}
			code := run(&cli.Env{Args: args, Stdout: &out, Stderr: &complaint, Getenv: func(name string) string { return env[name] }})
			l.Close()
			switch complete := args[0] == "__complete"; {
			case <-asked:
				t.Errorf("%s%v: it was asked", file, args)
			case complete && (code != cli.ExitOK || complaint.String() != ""):
				t.Errorf("%s%v: exit code %d, %s", file, args, code, &complaint)
			case !complete && (code != cli.ExitError || !strings.Contains(complaint.String(), "only if you trust the file: write --config penstock.yaml, or --admin ADDRESS")):
				t.Errorf("%s%v: exit code %d, %s", file, args, code, &complaint)
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	asked := contacts(l)
	implicit(t, fmt.Sprintf("admin: {bind: %q, change_token: 'file:"+secret+"'}\nlisteners: [{name: a, bind: 'unix:a', upstream: u}]\nupstreams: [{name: u, endpoints: ['unix:b']}]\n", l.Addr()))
	code, _, complaint := call("plan")
	l.Close()
	if <-asked || code != cli.ExitError || !strings.Contains(complaint, "only if you trust the file: write --config penstock.yaml, or --admin ADDRESS") {
		t.Errorf("plan: exit code %d, %s", code, complaint)
	}
	implicit(t, "admin: {bind: 'unix:/run/${SECRET}'}\n")
	if code, _, complaint := call("status"); code != cli.ExitError || !strings.Contains(complaint, "or --config penstock.yaml, which has its variables read") {
		t.Errorf("a variable: exit code %d, %s", code, complaint)
	}
}

// TestOtherUnits: commands look for sockets in the runtime directories of further units too.
func TestOtherUnits(t *testing.T) {
	t.Parallel()

	service := filepath.Join(t.TempDir(), "penstock")
	for _, name := range []string{"", "-next", "2"} {
		must(t, os.Mkdir(service+name, 0o700))
	}
	if got := otherUnits(service); !slices.Equal(got, []string{service + "-next"}) {
		t.Errorf("%q", got)
	}
}

// TestFingerprintOfAHungFile: the error names the file that does not answer, and not the one that includes it.
func TestFingerprintOfAHungFile(t *testing.T) {
	t.Parallel()

	dir := hung.Dir(t)
	hung.Mount(t, dir)
	included := filepath.Join(dir, "l.yaml")
	if _, err := fingerprint(&config.Config{Files: []string{included}}, "/dev/null"); err == nil || !strings.Contains(err.Error(), included) {
		t.Error(err)
	}
}
