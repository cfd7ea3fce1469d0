package failures

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// lonelyPort is the one port that the kernel of [TestADeadEndpointIsNotMet] gives to sockets that connect, so that
// each connect to it without a listener is a socket's to itself.
const lonelyPort = 40001

// TestADeadEndpointIsNotMet: a check, a client whose TLS ends here, another client, and a mirror, none takes a socket that is
// connected to itself for an endpoint, and none leaves it in TIME-WAIT: the endpoint has its port back at once.
func TestADeadEndpointIsNotMet(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", fmt.Appendf(nil, "%d %[1]d", lonelyPort), 0o644); err != nil {
		t.Skip("no range of ports can be set:", err)
	}
	dir := t.TempDir()
	live, err := net.Listen("unix", dir+"/live")
	must(t, err)
	sockets.Serve(t, live, sockets.Echo)
	b := serve(t, fmt.Sprintf(`
listeners:
  - {name: plain, bind: ["unix:%[1]s/plain"], upstream: dead}
  - {name: tls, bind: ["unix:%[1]s/tls"], upstream: dead, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
  - {name: mirrored, bind: ["unix:%[1]s/mirrored"], upstream: live, mirror: {upstream: other}}
upstreams:
  - {name: live, endpoints: ["unix:%[1]s/live"], health_check: off}
  - {name: dead, endpoints: [{name: e, address: "127.0.0.1:%[2]d"}], health_check: {interval: 20ms, fall: 3}, queue: {size: 0}, retry: {attempts: 1}}
  - {name: other, endpoints: [{name: e, address: "127.0.0.1:%[2]d"}], health_check: off}`, dir, lonelyPort))
	b.Until("an unhealthy endpoint", func() bool {
		e := b.Endpoint("dead", "e")
		return e.State == admin.Down && strings.Contains(e.Why, "self-connect")
	})
	for _, name := range []string{"plain", "tls"} {
		c, err := net.Dial("unix", dir+"/"+name)
		must(t, err)
		if name == "tls" {
			c = manners[1].wrap(c)
		}
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		if _, err := io.WriteString(c, "hello\n"); err == nil {
			if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				t.Errorf("%s: a client of a dead endpoint gets %q", name, line)
			}
		}
		c.Close()
	}
	c, err := net.Dial("unix", dir+"/mirrored")
	must(t, err)
	defer c.Close()
	must(t, (&client{Conn: c}).echo("hello\n"))
	b.Until("a mirror without an endpoint", func() bool { return mirrorsEnded(b.Listener("mirrored")) > 0 })
	if states := timeWaits(t); len(states) > 0 {
		t.Errorf("sockets of the endpoint's port in TIME-WAIT: %q", states)
	}
	b.Until("the endpoint has its port, once no check has it", func() bool {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lonelyPort))
		if err != nil {
			return false
		}
		return l.Close() == nil
	})
}

func mirrorsEnded(l admin.Listener) (n int64) {
	for _, ended := range l.Mirrors.Ended {
		n += ended
	}
	return n
}

// timeWaits returns the lines of /proc/net/tcp about sockets of the lonely port in TIME-WAIT.
func timeWaits(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", lonelyPort)) && f[3] == "06" {
			lines = append(lines, line)
		}
	}
	return lines
}
