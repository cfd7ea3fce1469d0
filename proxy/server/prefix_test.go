package server_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestSourcePrefixChanges: a reload changes source_prefix. The existing sessions count under
// their new prefixes. A reload that removes the limit for a while forgets none of them.
func TestSourcePrefixChanges(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u, limits: {%s}}]
upstreams: [{name: u, endpoints: [%q]}]`
	port, up := sockets.Port(t), named(t, "up")
	limits := func(s string) string { return fmt.Sprintf(text, port, s, up) }
	r := start(t, limits("per_source: 2"))
	refusals := int64(0)
	check := func(from string, served bool) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
		c, err := d.Dial("tcp", r.At("l"))
		if err == nil {
			t.Cleanup(func() { c.Close() })
			_ = c.SetDeadline(time.Now().Add(patience))
			_, err = sockets.ReadLine(c)
		}
		switch {
		case served && err != nil:
			t.Fatalf("%s: %v", from, err)
		case served:
			return c
		case !errors.Is(err, syscall.ECONNRESET): // the reset may come before connect returns
			t.Errorf("%s: %v, want a reset", from, err)
		}
		refusals++
		r.Until("the refusal is counted", func() bool { return r.Refused("l", "per_source") == refusals })
		return nil
	}
	first := check("127.0.0.1", true)
	check("127.0.0.1", true)
	check("127.0.0.1", false)
	check("127.0.0.2", true)

	r.Reload(limits("per_source: 4, source_prefix: [24, 64]"))
	check("127.0.0.3", true)
	check("127.0.0.4", false)
	check("127.0.1.1", true)
	first.Close()
	r.Until("the client has left", func() bool { return r.Listener("l").Connections.Active == 4 })
	check("127.0.0.4", true)
	check("127.0.0.4", false)

	r.Reload(limits("per_source: 1"))
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.1.1"} {
		check(from, false)
	}
	r.Reload(limits("connections: 100"))
	r.Reload(limits("per_source: 1"))
	check("127.0.0.4", false)
	check("127.0.0.5", true)
}
