package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestRulesOfBothWhileSwapped: a reload names an endpoint that serves, and rules that a waiting client does not
// meet. From the moment that the endpoint gets clients, that one gets none of it, nor does one that comes in
// then, although the sockets are still those of the configuration before. A client that meets both is served.
func TestRulesOfBothWhileSwapped(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		before, after string // the listeners
		unix          bool   // the client that is refused comes by the unix socket
	}{
		"denied":                {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: "127.0.0.1:PORT", deny: [127.0.1.9]}`, false},
		"not allowed":           {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: "127.0.0.1:PORT", allow: [127.0.1.8]}`, false},
		"denied, wider":         {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: ":PORT", deny: [127.0.1.9]}`, false},
		"denied, narrower":      {`{name: l, bind: ":PORT"}`, `{name: l, bind: "127.0.0.1:PORT", deny: [127.0.1.9]}`, false},
		"denied, renamed":       {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: m, bind: "127.0.0.1:PORT", deny: [127.0.1.9]}`, false},
		"denied, wider renamed": {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: m, bind: "0.0.0.0:PORT", deny: [127.0.1.9]}`, false},
		"denied by one of two": {
			`{name: l, bind: "0.0.0.0:PORT"}`,
			`{name: m, bind: "127.0.0.1:PORT", deny: [127.0.1.9]}, {name: l, bind: "127.0.0.2:PORT"}`, false,
		},
		"denied, gone and elsewhere": {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: "127.0.0.1:0", deny: [127.0.1.9]}`, false},
		"a header is asked for": {
			`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: ":PORT", accept_proxy: {from: [127.0.1.9]}}`, false,
		},
		"unix": {`{name: l, bind: ["127.0.0.1:PORT", "unix:SOCKET"]}`, `{name: l, bind: [":PORT", "unix:SOCKET"], deny: [unix]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			port, socket := sockets.Port(t), filepath.Join(t.TempDir(), "s")
			dead, alive := sockets.Port(t), named(t, "served")
			text := func(listeners, endpoint string) string {
				listeners = strings.NewReplacer("PORT", port, "SOCKET", socket, "}, {", ", upstream: u}, {").Replace(listeners)
				listeners = strings.TrimSuffix(listeners, "}") + ", upstream: u}"
				return fmt.Sprintf("listeners: [%s]\nupstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 1m}}]", listeners, endpoint)
			}
			r := start(t, text(test.before, "127.0.0.1:"+dead))
			comes := func() (net.Conn, error) {
				if test.unix {
					return net.Dial("unix", socket)
				}
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, 9)}, Timeout: patience}
				return d.Dial("tcp", "127.0.0.1:"+port)
			}
			denied, err := comes()
			if err != nil {
				t.Fatal(err)
			}
			defer denied.Close()
			allowed := from(t, 8, "127.0.0.1:"+port)
			r.Until("both are held", func() bool { return r.Status().Upstreams[0].Pending == 2 })
			refused := func(c net.Conn) {
				t.Helper()
				_ = c.SetDeadline(time.Now().Add(patience))
				if err := gone(t, c); test.unix == errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("its session ends with %v", err)
				}
			}
			var late net.Conn
			var lateErr error
			err = r.ApplyWith(context.Background(), r.Load(text(test.after, alive)), func() {
				refused(denied)
				late, lateErr = comes()
				if got := line(t, allowed); got != "served" {
					t.Errorf("the client that meets the rules gets %q", got)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if lateErr == nil { // else it was reset at once
				refused(late)
				late.Close()
			} else if !errors.Is(lateErr, syscall.ECONNRESET) {
				t.Error(lateErr)
			}
			if got := servedAt(t, port, name); got != "served" {
				t.Errorf("a client afterwards gets %q", got)
			}
		})
	}
}

// servedAt returns the line that a new client gets, or "served" where the listener has left the port.
func servedAt(t *testing.T, port, name string) string {
	if strings.Contains(name, "elsewhere") {
		return "served"
	}
	return line(t, from(t, 8, "127.0.0.1:"+port))
}

// TestRulesOfNeitherWhileSwapped: a reload gives an address to another listener, and the one that had it denies a
// client from then on. In the moment in which that one is in force, and the socket is its own still, a client that comes
// in is served: it meets the rules of the listener that had the address, and of the one that is about to have it.
func TestRulesOfNeitherWhileSwapped(t *testing.T) {
	t.Parallel()

	const deny = ", deny: [127.0.1.9]"
	for name, test := range map[string]struct{ before, after string }{ // the listeners
		"moved": {
			`{name: l, bind: "127.0.0.1:PORT", upstream: u}`,
			`{name: l, bind: "127.0.0.1:0", upstream: u` + deny + `}, {name: new, bind: "127.0.0.1:PORT", upstream: u}`,
		},
		"moved to one that denied others": {
			`{name: l, bind: "127.0.0.1:PORT", upstream: u}, {name: new, bind: "127.0.0.1:OTHER", upstream: u` + deny + `}`,
			`{name: new, bind: "127.0.0.1:PORT", upstream: u}, {name: l, bind: "127.0.0.1:OTHER", upstream: u` + deny + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			port, other, alive := sockets.Port(t), sockets.Port(t), named(t, "served")
			text := func(listeners string) string {
				return fmt.Sprintf("listeners: [%s]\nupstreams: [{name: u, endpoints: [%q], health_check: off}]",
					strings.NewReplacer("PORT", port, "OTHER", other).Replace(listeners), alive)
			}
			r := start(t, text(test.before))
			served := func() {
				t.Helper()
				c := from(t, 9, "127.0.0.1:"+port)
				defer c.Close()
				if got := line(t, c); got != "served" {
					t.Errorf("the client gets %q", got)
				}
			}
			if err := r.ApplyCommitted(t.Context(), r.Load(text(test.after)), served); err != nil {
				t.Fatal(err)
			}
			served()
		})
	}
}
