package balancing

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// digest is a script that returns a digest of all keys and values.
const digest = `local all = redis.call('keys', '*') table.sort(all) local d = ''
for _, key in ipairs(all) do d = redis.sha1hex(d .. key .. redis.call('get', key)) end return #all .. ' ' .. d`

// testMirrored has the traffic of redis-benchmark mirrored to a second Redis: small messages, pipelines and bulk. It has the
// same keys and values afterwards, counters included, so no command was lost or came twice. Then it stops, and is killed,
// while there is traffic: no client notices.
func testMirrored(t *testing.T) {
	cli, bench := software.Need(t, "redis-cli", "redis-tools"), software.Need(t, "redis-benchmark", "redis-tools")
	first, shadow := newStore(t), newStore(t)
	p := start(t, fmt.Sprintf(`
listeners: [{name: cache, bind: "127.0.0.1:0", upstream: cache, mirror: {upstream: shadow, patience: 30s}}]
upstreams:
  - {name: cache, endpoints: [%q]}
  - {name: shadow, endpoints: [%q], health_check: off}`, first.addr, shadow.addr))
	_, host, port := p.at("cache")
	load := func(args ...string) {
		t.Helper()
		out := software.Run(t, append([]string{bench, "-h", host, "-p", port, "--csv"}, args...)...)
		if strings.Contains(out, "rror") {
			t.Errorf("redis-benchmark %v prints %q", args, out)
		}
	}
	of := func(s *store) string {
		host, port, _ := strings.Cut(s.addr, ":")
		return strings.TrimSpace(software.Run(t, cli, "-h", host, "-p", port, "eval", digest, "0"))
	}
	load("-n", "3000", "-c", "10", "-r", "100", "-t", "set,incr")
	load("-n", "3200", "-c", "10", "-r", "100", "-P", "16", "-t", "incr") // no pipeline in part: it would be reset at the end
	load("-n", "300", "-c", "4", "-r", "50", "-d", "50000", "-t", "set")
	p.Until("all mirrors are over", func(s *admin.Status) bool { return s.Listeners[0].Mirrors.Running == 0 })
	m := p.State().Listeners[0].Mirrors
	teed := m.Teed > 0 || os.Geteuid() != 0 // the quota of pipes is the user's: other tests may have all of it
	if m.Ended["complete"] < 30 || len(m.Ended) != 1 || m.Undelivered != 0 || !teed || m.Copied == 0 {
		t.Errorf("%+v", m)
	}
	if a, b := of(first), of(shadow); a != b || !strings.Contains(a, " ") {
		t.Errorf("the primary has %q, its shadow %q", a, b)
	}

	must(t, shadow.Signal(syscall.SIGSTOP))
	load("-n", "200", "-c", "4", "-r", "50", "-d", "1000000", "-t", "set") // more than two pipes and two sockets take
	must(t, shadow.Kill())
	load("-n", "3000", "-c", "10", "-r", "100", "-P", "4", "-t", "set,get")
	p.Until("none is left", func(s *admin.Status) bool { return s.Listeners[0].Mirrors.Running == 0 })
	if m := p.State().Listeners[0].Mirrors; m.Ended["behind"] == 0 || m.Ended["connect"] == 0 {
		t.Errorf("with a shadow that has stopped, and then is dead: %+v", m)
	}
	p.stop()
}
