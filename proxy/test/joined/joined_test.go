// Package joined holds two connections that a relay has joined against the contract of net.Conn: they must
// be one connection to those who hold the far ends.
package joined

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A wrapper is what a program may have put around a connection before it joins it.
type wrapper func(t *testing.T, conn net.Conn) net.Conn

// counted sees every byte, and passes on an end of file.
type counted struct {
	net.Conn
	read, written atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func (c *counted) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

var wrappers = map[string]wrapper{
	"plain":     func(_ *testing.T, conn net.Conn) net.Conn { return conn },
	"wrapped":   func(_ *testing.T, conn net.Conn) net.Conn { return struct{ net.Conn }{conn} },
	"counted":   func(_ *testing.T, conn net.Conn) net.Conn { return &counted{Conn: conn} },
	"unwrapped": func(_ *testing.T, conn net.Conn) net.Conn { return relay.Prefixed(conn, nil) },
	"buffered":  func(_ *testing.T, conn net.Conn) net.Conn { return relay.Buffered(conn, bufio.NewReader(conn)) },
	"both":      func(_ *testing.T, conn net.Conn) net.Conn { return relay.Prefixed(&counted{Conn: conn}, nil) },
}

// networks make a pair of connections.
var networks = map[string]func(t testing.TB) (far, near net.Conn){
	"tcp":  func(t testing.TB) (net.Conn, net.Conn) { a, b := sockets.TCPPair(t); return a, b },
	"unix": func(t testing.TB) (net.Conn, net.Conn) { a, b := sockets.UnixPair(t); return a, b },
}

// TestConn: the far ends of two joined connections keep the contract of [net.Conn], by every engine, over
// every network, whatever the joined ends are wrapped in.
func TestConn(t *testing.T) {
	for _, engine := range []relay.Engine{relay.EngineAuto, relay.EngineSplice, relay.EngineCopy} {
		r, err := relay.New(&relay.Config{Engine: engine})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		for network, pair := range networks {
			for name, wrap := range wrappers {
				t.Run(engine.String()+"/"+network+"/"+name, func(t *testing.T) {
					t.Parallel()
					nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
						a, nearA := pair(t)
						b, nearB := pair(t)
						return a, b, join(t, r, wrap(t, nearA), nearB, a, b), nil
					})
				})
			}
		}
	}
}

// TestTLS: likewise through two sessions with TLS between them. The far ends are plain: a [tls.Conn] of
// which a Write has timed out is of no use any more, and that is its own doing.
func TestTLS(t *testing.T) {
	server, client := configs(t)
	r, err := relay.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		a, nearA := sockets.TCPPair(t)
		outer, inner := sockets.TCPPair(t)
		b, nearB := sockets.TCPPair(t)
		first := join(t, r, nearA, tls.Client(outer, client), a, b)
		second := join(t, r, tls.Server(inner, server), nearB, a, b)
		return a, b, func() { first(); second() }, nil
	})
}

func join(t *testing.T, r *relay.Relay, nearA, nearB, a, b net.Conn) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.Join(context.Background(), nearA, nearB)
	}()
	return func() {
		a.Close()
		b.Close()
		<-done
	}
}

func configs(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	cert, key := certificate.New(t, "joined.test")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(cert))
	return &tls.Config{Certificates: []tls.Certificate{pair}}, &tls.Config{RootCAs: pool, ServerName: "joined.test"}
}
