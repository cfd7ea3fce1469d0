package server_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

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

// TestDeniedWhereTheAddressIsAnothers: a client is held when a reload gives the address it
// connected to to another listener. Then that listener's rules apply to it, and that listener
// counts it. If no listener has the address any more, the rules of the client's own listener
// apply.
func TestDeniedWhereTheAddressIsAnothers(t *testing.T) {
	t.Parallel()

	const deny = ", deny: [127.0.1.9]"
	const notListed = "-" // one that is not in force any more, or one or another by chance
	type row struct {
		listeners string // the listeners of each reload, one a line
		denied    string // the listener that counts it; empty: none does
	}
	another := named(t, "another's")
	for before, rows := range map[string]map[string]row{
		`{name: l, bind: "127.0.0.1:PORT", upstream: u}`: {
			"renamed": {`{name: new, bind: "127.0.0.1:PORT", upstream: u` + deny + `}`, "new"},
			"moved to another that denies": {
				`{name: l, bind: "127.0.0.1:0", upstream: u}, {name: new, bind: "127.0.0.1:PORT", upstream: u` + deny + `}`, "new",
			},
			"wider":                    {`{name: new, bind: "0.0.0.0:PORT", upstream: u` + deny + `}`, "new"},
			"gone, and its own denies": {`{name: l, bind: "127.0.0.1:0", upstream: u` + deny + `}`, "l"},
			"gone":                     {`{name: new, bind: "127.0.0.1:0", upstream: u` + deny + `}`, ""},
			"gone, and back with another that denies": {
				`{name: x, bind: "127.0.0.1:0", upstream: u}` + "\n" + `{name: new, bind: "127.0.0.1:PORT", upstream: u` + deny + `}`, "new",
			},
			"gone, back with another that denies, and gone again": {
				`{name: x, bind: "127.0.0.1:0", upstream: u}` + "\n" + `{name: new, bind: "127.0.0.1:PORT", upstream: u` + deny + `}` + "\n" +
					`{name: x, bind: "127.0.0.1:0", upstream: u}`, notListed,
			},
			"gone, back with another, and that one elsewhere": {
				`{name: x, bind: "127.0.0.1:0", upstream: u}` + "\n" + `{name: new, bind: "127.0.0.1:PORT", upstream: u}` + "\n" +
					`{name: new, bind: "127.0.0.1:0", upstream: u` + deny + `}`, "new",
			},
		},
		`{name: l, bind: "0.0.0.0:PORT", upstream: u}, {name: x, bind: "127.0.0.1:0", upstream: v}`: {
			"in parts, and its own denies": {
				`{name: a, bind: "127.0.0.2:PORT", upstream: u}, {name: b, bind: "127.0.0.1:PORT", upstream: u` + deny + `}`, notListed,
			},
			// Another listener has a part of it: neither its rules nor its upstream are for a client at another part.
			"gone and denied, and a part is one's that allows": {
				`{name: l, bind: "127.0.0.1:0", upstream: u` + deny + `}, {name: b, bind: "127.0.0.2:PORT", upstream: v}`, notListed,
			},
			"gone, and a part is one's that denies": {
				`{name: l, bind: "127.0.0.1:0", upstream: u}, {name: b, bind: "127.0.0.2:PORT", upstream: v` + deny + `}`, "",
			},
		},
	} {
		for name, test := range rows {
			t.Run(name, func(t *testing.T) {
				port, later := sockets.Port(t), sockets.Port(t)
				text := func(listeners string) string {
					return fmt.Sprintf(`
listeners: [%s]
upstreams: [{name: u, endpoints: ["127.0.0.1:%s"], health_check: off, queue: {hold: 1m}}, {name: v, endpoints: [%q], health_check: off}]`,
						strings.ReplaceAll(listeners, "PORT", port), later, another)
				}
				r := start(t, text(before))
				var held [2]net.Conn
				for i, ip := range []byte{9, 8} {
					held[i] = from(t, ip, "127.0.0.1:"+port)
					defer held[i].Close() // before the server at the port later waits for it
					r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == int64(i)+1 })
				}
				for _, listeners := range strings.Split(test.listeners, "\n") {
					r.Reload(text(listeners))
				}
				serverAt(t, later, "served")
				hears(t, held[1], "served")
				if test.denied == "" {
					hears(t, held[0], "served")
					return
				}
				isReset(t, held[0])
				if test.denied != notListed {
					r.Until("the refusal is counted", func() bool { return r.Refused(test.denied, "address") == 1 })
				}
			})
		}
	}
}

// TestHandshakeUnderWay: a handshake begins under a configuration that requires no certificate,
// and ends under one that does. The client is refused.
func TestHandshakeUnderWay(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	port := sockets.Port(t)
	text := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u, tls: {certificates: [{cert: c.pem, key: k.pem}]%%s}}]
upstreams: [{name: u, endpoints: [%q]}]`, port, named(t, "u"))
	r := start(t, fmt.Sprintf(text, ""), "c.pem", cert, "k.pem", key, "ca.pem", cert)
	raw := client(t, "127.0.0.1:"+port)
	r.Until("the handshake is under way", func() bool { return r.Status().Listeners[0].Handshakes.Active == 1 })
	r.Reload(fmt.Sprintf(text, ", client_ca: ca.pem"))
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	if s, err := sockets.ReadLine(c); err == nil {
		t.Errorf("the client gets %q", s)
	}
	r.Until("the refusal is counted", func() bool { return r.Refused("l", "tls") == 1 })
}
