package server_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// socketPath is a path that is short enough for a socket, whatever the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(sockets.Dir(t), "s")
}

// dialUnix connects a client of a unix socket for the duration of the test.
func dialUnix(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// says connects to a unix socket, sends a line, and returns the first line of the answer; empty
// if the client is refused.
func says(t *testing.T, path, sends string) string {
	t.Helper()
	c := dialUnix(t, path)
	defer c.Close()
	_, _ = io.WriteString(c, sends)
	got, err := sockets.ReadLine(c)
	if err != nil && got != "" {
		t.Errorf("%q, and then %v", got, err)
	}
	return got
}

// TestUnixClients: source rules also apply to clients of unix sockets, by the credentials from
// the kernel.
func TestUnixClients(t *testing.T) {
	t.Parallel()

	me, mine, other := os.Geteuid(), os.Getegid(), os.Geteuid()+1
	for rules, served := range map[string]bool{
		"upstream: u": true,
		`upstream: u, allow: ["0.0.0.0/0", "::/0"]`:                                                      false,
		`upstream: u, allow: ["10.0.0.0/8", unix]`:                                                       true,
		`upstream: u, allow: [all]`:                                                                      true,
		fmt.Sprintf("upstream: u, allow: ['unix:uid=%d']", me):                                           true,
		fmt.Sprintf("upstream: u, allow: ['unix:uid=%d']", other):                                        false,
		fmt.Sprintf("upstream: u, allow: ['unix:gid=%d']", mine):                                         true,
		fmt.Sprintf("upstream: u, allow: [unix], deny: ['unix:uid=%d']", me):                             false,
		fmt.Sprintf("upstream: u, allow: [unix], deny: ['unix:uid=%d']", other):                          true,
		"upstream: u, deny: [all]":                                                                       false,
		"upstream: u, deny: [unix]":                                                                      false,
		`upstream: u, deny: ["0.0.0.0/0", "::/0"]`:                                                       true,
		fmt.Sprintf("routes: [{match: {source: ['unix:uid=%d']}, upstream: u}], upstream: other", me):    true,
		fmt.Sprintf("routes: [{match: {source: ['unix:uid=%d']}, upstream: other}], upstream: u", other): true,
	} {
		t.Run(rules, func(t *testing.T) {
			path := socketPath(t)
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "unix:%s", %s}]
upstreams: [{name: u, endpoints: [%q]}, {name: other, endpoints: [%q]}]`, path, rules, named(t, "a"), named(t, "another")))
			want, refused := "a", int64(0)
			if !served {
				want, refused = "", 1
			}
			if got := says(t, path, ""); got != want {
				t.Errorf("the client gets %q", got)
			}
			r.Until("the refusal is counted", func() bool { return r.Refused("l", "address") == refused })
		})
	}
}

// TestUnixClientsAreCounted: clients of unix sockets are counted by user.
func TestUnixClientsAreCounted(t *testing.T) {
	t.Parallel()

	path := socketPath(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: ["unix:%s", "127.0.0.1:0"], upstream: u, limits: {per_source: 2}}]
upstreams: [{name: u, endpoints: [%q]}]`, path, named(t, "a")))
	first, second := dialUnix(t, path), dialUnix(t, path)
	line(t, first)
	line(t, second)
	if got := says(t, path, ""); got != "" {
		t.Errorf("a user's third client gets %q", got)
	}
	r.Until("the refusal is counted", func() bool { return r.Refused("l", "per_source") == 1 })
	whose(t, r.Status().Listeners[0].Addresses[1]) // another source
	first.Close()
	r.Until("one client has left", func() bool { return r.Listener("l").Connections.Active == 1 })
	if got := says(t, path, ""); got != "a" {
		t.Errorf("after one has left the next client gets %q", got)
	}
}

// TestHeadersOfUnixClients: their headers are accepted if accept_proxy names unix or all, or no
// sources. Otherwise the header is passed on as the client's own bytes.
func TestHeadersOfUnixClients(t *testing.T) {
	t.Parallel()

	const sent = "PROXY TCP4 192.0.2.1 192.0.2.2 1111 443\r\n"
	echoed := sockets.Server(t, sockets.Echo)
	for rules, want := range map[string]string{
		"accept_proxy: {}":                                                   "hello",
		"accept_proxy: {from: [unix]}":                                       "hello",
		`accept_proxy: {from: [all], timeout: 5s}`:                           "hello",
		"accept_proxy: {from: [unix]}, allow: [192.0.2.0/24]":                "hello",
		"accept_proxy: {from: [unix]}, allow: [unix]":                        "",
		"accept_proxy: {from: [unix]}, deny: [192.0.2.1]":                    "",
		`accept_proxy: {from: ["0.0.0.0/0"]}`:                                strings.TrimSuffix(sent, "\n"),
		`accept_proxy: {from: ["0.0.0.0/0"]}, allow: [192.0.2.1]`:            "",
		`accept_proxy: {from: ["0.0.0.0/0"]}, deny: [192.0.2.1]`:             strings.TrimSuffix(sent, "\n"),
		`accept_proxy: {from: ["0.0.0.0/0"]}, allow: ["unix"]`:               strings.TrimSuffix(sent, "\n"),
		fmt.Sprintf("accept_proxy: {from: ['unix:uid=%d']}", os.Geteuid()+1): strings.TrimSuffix(sent, "\n"),
	} {
		t.Run(rules, func(t *testing.T) {
			path := socketPath(t)
			start(t, fmt.Sprintf("listeners: [{name: l, bind: %q, upstream: u, %s}]\nupstreams: [{name: u, endpoints: [%q]}]", "unix:"+path, rules, echoed))
			if got := says(t, path, sent+"hello\n"); got != want {
				t.Errorf("the client gets %q, want %q", got, want)
			}
		})
	}
}

// TestSourcesAreLogged: at debug level the sources of refused and of served clients are logged,
// also if the client has reset.
func TestSourcesAreLogged(t *testing.T) {
	t.Parallel()

	path := socketPath(t)
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, fmt.Sprintf(`
listeners:
  - {name: served, bind: ["127.0.0.1:0", "unix:%s"], upstream: u}
  - {name: refused, bind: ["127.0.0.1:0", "unix:%[1]s2"], upstream: u, deny: [all]}
upstreams: [{name: u, endpoints: [%q]}]`, path, named(t, "a")))}
	who := fmt.Sprintf("client=\"unix:uid=%d,gid=%d,pid=%d\"", os.Geteuid(), os.Getegid(), os.Getpid())
	c := client(t, r.At("served"))
	line(t, c)
	if err := errors.Join(c.SetLinger(0), c.Close()); err != nil {
		t.Fatal(err)
	}
	r.Logs("session ended", "client="+c.LocalAddr().String())
	says(t, path, "")
	r.Logs("session ended", who)
	refused(t, r.At("refused"))
	r.Logs("connection refused", "client=127.0.0.1:")
	says(t, path+"2", "")
	r.Logs("connection refused", who)
}
