package balancing

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
)

// testRewrittenRedis has the values of redis-cli's commands masked, and the answers: their lengths and numbers stay.
func testRewrittenRedis(t *testing.T) {
	cli, s := software.Need(t, "redis-cli", "redis-tools"), newStore(t)
	p := start(t, fmt.Sprintf(`
listeners:
  - {name: up, bind: "127.0.0.1:0", upstream: redis, rewrite: {direction: up, framing: resp, mask: [card, email, token]}}
  - {name: down, bind: "127.0.0.1:0", upstream: redis, rewrite: {direction: down, framing: resp, mask: [card, email, token]}}
upstreams: [{name: redis, endpoints: [%q], health_check: off}]`, s.addr))
	ask := func(addr string, command ...string) string {
		t.Helper()
		host, port, err := net.SplitHostPort(addr)
		must(t, err)
		return strings.TrimSpace(software.Run(t, append([]string{cli, "-h", host, "-p", port}, command...)...))
	}
	up, _, _ := p.at("up")
	down, _, _ := p.at("down")
	ask(up, "set", "a", "joe@example.com")
	ask(s.addr, "set", "b", "4111 1111 1111 1111")
	ask(s.addr, "set", "c", "4111111111111110")
	for _, c := range []struct{ got, want string }{
		{ask(s.addr, "get", "a"), "***@*******.***"},
		{ask(down, "get", "b"), "**** **** **** 1111"},
		{ask(down, "mget", "b", "none", "b"), "**** **** **** 1111\n\n**** **** **** 1111"},
		{ask(down, "incr", "c"), "4111111111111111"}, // a number
		{ask(down, "-3", "hset", "joe@example.com", "b", "2"), "1"},
		{ask(down, "echo", "ghp_"+strings.Repeat("a1", 18)), "ghp_" + strings.Repeat("*", 36)},
	} {
		if c.got != c.want {
			t.Errorf("redis-cli has got %q, want %q", c.got, c.want)
		}
	}
	p.stop()
}
