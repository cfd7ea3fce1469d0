package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// A tlsRig has TLS ended here at the listener ended, and begun here at the listener begun, and
// returns the endpoints' ends of sessions.
type tlsRig struct {
	*rig
	t         *testing.T
	cert, key string
	far       chan net.Conn
}

func newTLSRig(t *testing.T) *tlsRig {
	g := &tlsRig{t: t, far: make(chan net.Conn)}
	g.cert, g.key = certificate.New(t, "front.test")
	over := make(chan struct{})
	up := sockets.Server(t, func(c net.Conn) {
		select {
		case g.far <- c:
			<-over
		case <-over:
		}
	})
	t.Cleanup(func() { close(over) })
	g.rig = start(t, fmt.Sprintf(`
listeners:
  - {name: ended, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: c.key}]}, upstream: plain}
  - {name: begun, bind: "127.0.0.1:0", upstream: tls}
upstreams:
  - {name: plain, endpoints: [%q], health_check: off, outlier_detection: off}
  - {name: tls, endpoints: [%q], tls: {ca: c.pem, sni: front.test}, health_check: off, outlier_detection: off}`, up, up), "c.pem", g.cert, "c.key", g.key)
	return g
}

// session returns the two ends of a joined session: the TLS end with its TCP connection, and the
// other end.
func (g *tlsRig) session(listener string) (spoken *tls.Conn, beneath, plain *net.TCPConn) {
	g.t.Helper()
	c := client(g.t, g.At(listener))
	if listener == "ended" {
		spoken, beneath = tls.Client(c, &tls.Config{ServerName: "front.test", RootCAs: trusting(g.cert)}), c
		if err := spoken.Handshake(); err != nil {
			g.t.Fatal(err)
		}
		plain = (<-g.far).(*net.TCPConn)
	} else {
		pair, err := tls.X509KeyPair([]byte(g.cert), []byte(g.key))
		if err != nil {
			g.t.Fatal(err)
		}
		beneath, plain = (<-g.far).(*net.TCPConn), c
		spoken = tls.Server(beneath, &tls.Config{Certificates: []tls.Certificate{pair}})
		if err := spoken.Handshake(); err != nil {
			g.t.Fatal(err)
		}
	}
	for _, c := range []net.Conn{beneath, plain} {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	for _, way := range [][2]net.Conn{{spoken, plain}, {plain, spoken}} {
		if _, err := way[0].Write([]byte{'x'}); err != nil {
			g.t.Fatal(err)
		}
		if _, err := io.ReadFull(way[1], make([]byte, 1)); err != nil {
			g.t.Fatal(err)
		}
	}
	return spoken, beneath, plain
}

// TestTornTLSIsAReset: a stream that ends with close_notify ends for the other side. A stream
// that ends without it is reset, after the received bytes.
func TestTornTLSIsAReset(t *testing.T) {
	t.Parallel()

	g := newTLSRig(t)
	for _, listener := range []string{"ended", "begun"} {
		for how, want := range map[string]error{"close_notify": nil, "torn": syscall.ECONNRESET, "reset": syscall.ECONNRESET} {
			spoken, beneath, plain := g.session(listener)
			if _, err := spoken.Write([]byte("said")); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 4)
			if _, err := io.ReadFull(plain, got); err != nil || string(got) != "said" {
				t.Fatalf("%s: %q, %v", listener, got, err)
			}
			var err error
			switch how {
			case "close_notify":
				err = spoken.CloseWrite()
			case "torn":
				err = beneath.CloseWrite()
			case "reset":
				err = errors.Join(beneath.SetLinger(0), beneath.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			if n, err := plain.Read(got); n != 0 || want == nil && err != io.EOF || want != nil && !errors.Is(err, want) {
				t.Errorf("%s, %s: the other side reads %d bytes, %v", listener, how, n, err)
			}
			_, _ = beneath.Close(), plain.Close()
		}
	}
}

// TestResetWithTLSIsNoEnd: when either side is reset, so is the other one, without an end of file
// before. With TLS it has not received close_notify either.
func TestResetWithTLSIsNoEnd(t *testing.T) {
	t.Parallel()

	g := newTLSRig(t)
	for _, listener := range []string{"ended", "begun"} {
		for _, of := range []sockets.Survivor{{Reads: true}, {Reads: true, Writes: true}} {
			for i := range 40 {
				spoken, beneath, plain := g.session(listener)
				var survives net.Conn = plain
				resets, writes := beneath, net.Conn(spoken)
				if i%2 == 1 {
					survives, resets, writes = spoken, plain, plain
				}
				s, ended := of, make(chan struct{})
				go func() { defer close(ended); s.Live(survives, make([]byte, 4096)) }()
				for range i {
					if _, err := writes.Write(make([]byte, 1000)); err != nil {
						t.Fatal(err)
					}
				}
				_, _ = resets.SetLinger(0), resets.Close()
				<-ended
				if !s.WasReset() {
					t.Errorf("%s, the side with TLS survives: %v; %v", listener, i%2 == 1, &s)
				}
				_ = survives.Close()
			}
		}
	}
}
