package hostile_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
)

func terminating(t *testing.T) *rig {
	cert, key := certificate.New(t, "front.test")
	return start(t, fmt.Sprintf(`
listeners: [{name: tls, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, echo(t)), "c.pem", cert, "k.pem", key)
}

func honestTLS(t *testing.T, address string) *honest {
	return honestBy(t, func() error {
		d := net.Dialer{Timeout: condition.Patience}
		c, err := tls.DialWithDialer(&d, "tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		return exchange(c, []byte("honest"))
	})
}

// TestHalfHandshakes: more clients than the limit of handshakes begin a handshake, and do not
// continue. They have sent all of their ClientHello and only read, or a part of it, or nothing.
// Others are served meanwhile.
func TestHalfHandshakes(t *testing.T) {
	hello := helloOf(t, "front.test")
	for name, sends := range map[string]func(i int) int{
		"whole": func(int) int { return len(hello) },
		"parts": func(i int) int { return i % len(hello) },
	} {
		t.Run(name, func(t *testing.T) {
			r := terminating(t)
			n := most(t, 1200) // the limits are 1,024 handshakes and 2,500 sessions
			clients := crowd(t, n, r.At("tls"))
			for i, c := range clients {
				_, _ = c.Write(hello[:sends(i)])
			}
			r.Until("all clients have been accepted", func() bool { return r.Summary().Connections.Accepted >= int64(n) })
			h := honestTLS(t, r.At("tls"))
			time.Sleep(300 * time.Millisecond) // some clients connect in this time
			h.Stop()
			closeAll(clients)
			r.settled(n)
		})
	}
}

// TestTLSGarbage: bytes that are not TLS are refused at once and counted, also in place of the
// end of a handshake.
func TestTLSGarbage(t *testing.T) {
	r := terminating(t)
	hello := helloOf(t, "front.test")
	h := honestTLS(t, r.At("tls"))
	all := [][]byte{
		[]byte("GET / HTTP/1.1\r\n\r\n"), bytes.Repeat([]byte{0xff}, 4096),
		append(bytes.Clone(hello), bytes.Repeat([]byte{0xff}, 100)...),
		append(bytes.Clone(hello), hello...), records(hello, len(hello)-5)[:600],
	}
	const times = 20
	for _, sent := range all {
		for range times {
			c := dial(t, r.At("tls"))
			_, _ = c.Write(sent)
			_ = c.CloseWrite()
			for b := make([]byte, 1<<10); ; {
				if _, err := c.Read(b); err != nil {
					break
				}
			}
			c.Close()
		}
	}
	h.Stop()
	r.refused("tls", map[string]int64{"tls": int64(len(all) * times)})
	r.settled(100)
}
