package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestDeniedWhileTheyWait: a reload that denies a source also applies to its clients that wait
// for room, for their first bytes or for their header. Their next step notices it. Sessions
// continue.
func TestDeniedWhileTheyWait(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	ports := [3]string{sockets.Port(t), sockets.Port(t), sockets.Port(t)}
	text := func(deny string) string {
		return fmt.Sprintf(`
listeners:
  - {name: room, bind: "127.0.0.1:%s", upstream: u%s}
  - {name: data, bind: "127.0.0.1:%s", upstream: v, connect: on_data%[2]s}
  - {name: header, bind: "127.0.0.1:%[4]s", upstream: v, accept_proxy: {from: [127.0.0.0/8]}%[2]s}
upstreams:
  - {name: u, endpoints: [{address: %[5]q, connections: 1}], queue: {timeout: 1m}}
  - {name: v, endpoints: [%[5]q]}`, ports[0], deny, ports[1], ports[2], a)
	}
	r := start(t, text(""))
	from := func(i int, ip string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", "127.0.0.1:"+ports[i])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		return c
	}
	session := from(0, "127.0.0.9")
	line(t, session)
	waits, other := from(0, "127.0.0.9"), from(0, "127.0.0.8")
	data, proxied, honest := from(1, "127.0.0.9"), from(2, "127.0.0.8"), from(2, "127.0.0.8")
	r.Until("all clients are accepted", func() bool { return r.Status().Connections.Active == 6 })
	r.Reload(text(", deny: [127.0.0.9]"))
	echoes(t, session, "still here")
	_, _ = io.WriteString(data, "x")
	_, _ = io.WriteString(proxied, "PROXY TCP4 127.0.0.9 127.0.0.1 1 1\r\n")
	_, _ = io.WriteString(honest, "PROXY TCP4 127.0.0.7 127.0.0.1 1 1\r\n")
	line(t, honest)
	session.Close() // this makes room
	for name, c := range map[string]net.Conn{"room": waits, "data": data, "header": proxied} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client that waits for %s gets %v, want a reset", name, err)
		}
		r.Until("the refusal is counted", func() bool { return r.Refused(name, "address") == 1 })
	}
	line(t, other)
}

// TestRefusesAll: the status has the reason for which a listener refuses every client, until a reload changes its rules.
func TestRefusesAll(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, deny: [%s]}]
upstreams: [{name: u, endpoints: [%q]}]`
	echo := sockets.Server(t, sockets.Echo)
	r := start(t, fmt.Sprintf(text, "all", echo))
	if why := r.Status().Listeners[0].RefusesAll; why != "deny has every source" {
		t.Errorf("%q", why)
	}
	r.Reload(fmt.Sprintf(text, "192.0.2.1", echo))
	if why := r.Status().Listeners[0].RefusesAll; why != "" {
		t.Errorf("after a reload: %q", why)
	}
}
