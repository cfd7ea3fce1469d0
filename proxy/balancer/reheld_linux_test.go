package balancer_test

import (
	"fmt"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestHeldClientsAtAReload: a client that is held is served by an endpoint that a reload adds to the
// upstream, by another upstream that the reload has the listener lead to, and by a new fallback.
func TestHeldClientsAtAReload(t *testing.T) {
	dead, w := sockets.Refusing(t), named(t, "w")
	held := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: %%s}}]`, dead)
	t.Run("an endpoint is added", func(t *testing.T) {
		r := start(t, fmt.Sprintf(held, "1m"))
		c := client(t, r.At("l"))
		defer c.Close()
		r.Until("it is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q, %q], health_check: off, queue: {hold: 1m}}]`, dead, w))
		if got := line(t, c); got != "w" {
			t.Error(got)
		}
	})
	t.Run("another upstream", func(t *testing.T) {
		r := start(t, fmt.Sprintf(held, "2s"))
		c := client(t, r.At("l"))
		defer c.Close()
		r.Until("it is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: w}]
upstreams: [{name: w, endpoints: [%q]}]`, w))
		if got := whose(t, r.At("l")); got != "w" {
			t.Error(got)
		}
		if got := line(t, c); got != "w" {
			t.Errorf("the one that was held: %q", got)
		}
	})
	t.Run("a fallback", func(t *testing.T) {
		r := start(t, fmt.Sprintf(held, "2s"))
		c := client(t, r.At("l"))
		defer c.Close()
		r.Until("it is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
- {name: u, endpoints: [%q], health_check: off, fallback: {upstream: w}}
- {name: w, endpoints: [%q]}`, dead, w))
		if got := line(t, c); got != "w" {
			t.Errorf("the one that was held: %q", got)
		}
	})
}
