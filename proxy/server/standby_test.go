package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// TestAStandbyIsNoProblem: an endpoint whose check has the answer of a healthy standby is shown as that, until
// its answers are others.
func TestStandby(t *testing.T) {
	t.Parallel()
	const primary, standby, stopped = "primary", "standby", "stopped"
	role := func(is *atomic.Value) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			switch is.Load() {
			case standby:
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"state": "running", "role": "replica"}`)
			case stopped:
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"state": "stopped", "role": "replica"}`)
			}
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	var a, b atomic.Value
	a.Store(primary)
	b.Store(standby)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{name: a, address: %q}, {name: b, address: %q}]
    health_check: {type: http, interval: 30ms, timeout: 2s, fast_interval: 10ms, rise: 1, fall: 2, standby: '"state": "running"'}`, role(&a), role(&b)))
	r.Until("a standby", func() bool { return r.Endpoint("u", "b").State == admin.Standby })
	e := r.Endpoint("u", "b")
	if why := e.Unusable(); !strings.HasPrefix(why, "standby: status 503") {
		t.Errorf("the standby gets no clients for %q", why)
	}
	b.Store(stopped)
	r.Until("a standby that is down", func() bool { return r.Endpoint("u", "b").State == admin.Down })
	b.Store(standby)
	r.Until("a standby again", func() bool { return r.Endpoint("u", "b").State == admin.Standby })
	a.Store(standby)
	r.Until("no primary", func() bool { return r.Endpoint("u", "a").State == admin.Standby })
	b.Store(primary)
	r.Until("another primary", func() bool { return r.Endpoint("u", "b").State == admin.Up })
	r.Logs("state=standby")
}
