package server_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestPausesAreToldAndCounted: when a listener reaches its limit of connections, or of
// connections a second, the status says so. The pauses are counted, and logged once.
func TestPausesAreToldAndCounted(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, limits: {connections: 1}}
  - {name: m, bind: "127.0.0.1:0", upstream: u, limits: {per_second: 1}}
  - {name: n, bind: "127.0.0.1:0", upstream: u}
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	for i := range 5 {
		c := client(t, r.At("l"))
		line(t, c)
		if l := r.Listener("l"); l.State != "paused" || l.PausedAt != "connections" {
			t.Errorf("at its limit of connections: %+v", l)
		}
		late := client(t, r.At("l"))
		r.Until("the client waits", func() bool { return r.Listener("l").Pauses["connections"] >= int64(i+1) })
		c.Close()
		line(t, late)
		late.Close()
		r.Until("there is room", func() bool { l := r.Listener("l"); return l.State == "serving" && l.PausedAt == "" })
	}
	line(t, client(t, r.At("m")))
	late := client(t, r.At("m"))
	r.Until("the client waits", func() bool { return r.Listener("m").Pauses["per_second"] >= 1 })
	line(t, late)
	if m := r.Listener("m"); m.State != "paused" || m.PausedAt != "per_second" {
		t.Errorf("at its limit of connections a second: %+v", m)
	}
	line(t, client(t, r.At("n")))
	if n := r.Listener("n"); len(n.Pauses) != 0 || n.State != "serving" {
		t.Errorf("without a limit: %+v", n)
	}
	r.Logs("level=INFO", "listener at its limit", "listener=l", "limit=connections", "times=1")
	r.Logs("level=INFO", "listener at its limit", "listener=m", "limit=per_second")
	if n := strings.Count(r.Log.String(), "listener=l limit="); n > 2 { // twice if the test takes long
		t.Errorf("logged %d times", n)
	}
}
