package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

// An apiDocument is the part of docs/openapi.json that its test looks at.
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
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// TestAnswersAsDocumented: the answers of a running process with sessions are as docs/openapi.json has them,
// for each request, with no member that it has not.
func TestAnswersAsDocumented(t *testing.T) {
	t.Parallel()

	var d apiDocument
	text, err := os.ReadFile("../../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal(p.ask(t, http.MethodGet, "/v1/status"), &st); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(p.file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set(admin.Header, "1")
	answer, err := p.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%s %s: %s, %v: %s", method, target, answer.Status, err, body)
	}
	return body
}
