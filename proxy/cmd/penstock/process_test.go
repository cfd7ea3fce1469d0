package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

const oneListener = `
listeners: [{name: web, bind: "unix:%[1]s/web", upstream: shop}]
upstreams: [{name: shop, endpoints: [%[2]q]}]
`

// probe returns the code of GET /readyz.
func (p *served) probe(t *testing.T) int {
	t.Helper()
	answer, err := p.client.Get("http://localhost/readyz")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// echoes serves a client.
func (p *served) echoes(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(p.dir, "web"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(c, "hello")
	if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *served) status(t *testing.T) (s admin.Status) {
	t.Helper()
	if err := json.Unmarshal(p.ask(t, http.MethodGet, "/v1/status"), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReadinessFailsFirst: at the end of the process GET /readyz fails, and for --drain-delay clients are accepted
// all the same. A second signal ends the process without the rest of that time.
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
		if _, err := p.stderr.wait("not ready any more", 1, p.done); err != nil {
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
			`^the process was asked to drain already: it does at \d{4}.*, and accepts clients until then: it has 1 session\n$`,
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
