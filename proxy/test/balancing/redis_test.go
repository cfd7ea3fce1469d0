package balancing

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

type store struct {
	addr, port string
	*os.Process
}

func newStore(t *testing.T) *store {
	t.Helper()
	server, s := software.Need(t, "redis-server", "redis-server"), new(store)
	var host string
	s.addr, host, s.port = software.Addr(t)
	dir := software.Dir(t, nil)
	s.Process = software.Service{
		Command: []string{
			server, "--bind", host, "--port", s.port,
			"--dir", dir, "--save", "", "--appendonly", "no",
		},
		Dir: dir, Ready: "Ready to accept connections", Addr: s.addr, Stop: syscall.SIGTERM,
	}.Start(t)
	return s
}

// testRedis checks two servers by PING. One suddenly requires a password, which the check is then
// given, and is killed later. Sessions of the other one, and new clients, are not affected.
func testRedis(t *testing.T) {
	cli, bench := software.Need(t, "redis-cli", "redis-tools"), software.Need(t, "redis-benchmark", "redis-tools")
	first, second := newStore(t), newStore(t)
	configuration := func(send string) string {
		return fmt.Sprintf(`
listeners: [{name: cache, bind: "127.0.0.1:0", upstream: cache}, {name: second, bind: "127.0.0.1:0", upstream: second}]
upstreams:
  - name: cache
    balance: first
    endpoints: [{address: %q, name: first}, {address: %q, name: second}]
    health_check: {send: %q, expect: "+PONG", interval: 100ms, fast_interval: 50ms, timeout: 1s, rise: 2, fall: 2}
  - {name: second, endpoints: [%[2]q]}`, first.addr, second.addr, send)
	}
	p := start(t, configuration("PING\r\n"))
	at := map[string][]string{}
	for _, listener := range []string{"cache", "second"} {
		_, host, port := p.at(listener)
		at[listener] = []string{"-h", host, "-p", port}
	}
	ask := func(listener string, command ...string) string {
		return strings.TrimSpace(software.Run(t, append(append([]string{cli}, at[listener]...), command...)...))
	}
	served := func(by *store) {
		t.Helper()
		if info := ask("cache", "--no-auth-warning", "-a", "secret", "info", "server"); !strings.Contains(info, "tcp_port:"+by.port+"\r") {
			t.Errorf("clients are not served at port %s:\n%s", by.port, info)
		}
	}
	if got := ask("cache", "set", "key", "value") + ask("cache", "get", "key"); got != "OKvalue" {
		t.Errorf("set and get return %q", got)
	}
	ofFirst, ofSecond := converse(t, cli, at["cache"]), converse(t, cli, at["second"])
	served(first)

	// A server can be unusable while its kernel still accepts connections.
	ofFirst.say("config set requirepass secret", "OK")
	p.Until("the check does not get the expected bytes", func(s *admin.Status) bool {
		e := endpointOf(s, "cache", "first")
		return e.State == "down" && strings.Contains(p.Log.String(), "not the expected answer: 34 bytes")
	})
	served(second)
	ofFirst.say("get key", "value") // on_unhealthy is keep

	must(t, writeFile(p.Dir+"/ping", "AUTH secret\r\nPING\r\n\n")) // the last end of line is removed from the file's content
	p.Reload(configuration("file:ping"))
	p.Until("the first server is up with a password", func(s *admin.Status) bool { return endpointOf(s, "cache", "first").State == "up" })
	served(first)

	must(t, first.Kill())
	p.Until("the check finds that the first server is gone", func(s *admin.Status) bool { return endpointOf(s, "cache", "first").State == "down" })
	ofFirst.ends()
	served(second)
	ofSecond.say("echo there", "there")
	out := software.Run(t, append(append([]string{bench}, at["cache"]...), "-n", "4000", "-c", "20", "-P", "4", "-t", "set,get", "--csv")...)
	if lines := strings.Count(strings.TrimSpace(out), "\n"); lines != 2 {
		t.Errorf("redis-benchmark prints %q", out)
	}
	ofSecond.say("echo still-there", "still-there")
	must(t, ofFirst.in.Close())
	must(t, ofSecond.in.Close())
	p.stop()
}

// A conversation is a redis-cli with one connection.
type conversation struct {
	t    *testing.T
	in   io.WriteCloser
	out  software.Output
	cmd  *exec.Cmd
	done chan error
	said int
}

// converse has redis-cli read commands, until the end of the test at the latest.
func converse(t *testing.T, cli string, at []string) *conversation {
	t.Helper()
	c := &conversation{t: t, done: make(chan error, 1)}
	c.cmd = exec.Command(cli, at...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	var err error
	c.in, err = c.cmd.StdinPipe()
	must(t, err)
	must(t, c.cmd.Start())
	ended := make(chan struct{})
	go func() { c.done <- c.cmd.Wait(); close(ended) }()
	t.Cleanup(func() { c.in.Close(); _ = c.cmd.Process.Kill(); <-ended })
	c.say("echo hello", "hello")
	return c
}

func (c *conversation) say(command, answer string) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in, command)
	must(c.t, err)
	if !condition.Eventually(func() bool { return strings.HasSuffix(c.out.String()[c.said:], answer+"\n") }) {
		c.t.Fatalf("to %q the answer is %q, want %q", command, c.out.String()[c.said:], answer)
	}
	c.said = len(c.out.String())
}

// ends fails the test unless the connection has ended. redis-cli itself notices the end with its
// next command, and then connects again. So the end is looked for in its output.
func (c *conversation) ends() {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in, "client id")
	must(c.t, err)
	if !condition.Eventually(func() bool { return strings.Contains(c.out.String()[c.said:], "Error: ") }) {
		c.t.Errorf("after the end of its server redis-cli prints %q", c.out.String()[c.said:])
	}
}
