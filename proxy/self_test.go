//go:build linux

package proxy_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
)

// freePort returns a port on which nobody listens now.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// onFreePort opens a server on such a port; on another one if somebody took it first.
func onFreePort(t *testing.T, cfg func(port string) *proxy.Config) (s *proxy.Server, err error) {
	t.Helper()
	for range 10 {
		s, err = proxy.Open(context.Background(), cfg(freePort(t)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return s, err
}

func TestTargetThatIsTheProxyItself(t *testing.T) { eachDriver(t, testTargetThatIsTheProxyItself) }

func testTargetThatIsTheProxyItself(t *testing.T) {
	path := "unix:" + t.TempDir() + "/s"
	for _, c := range []struct {
		listen, to string
		self       bool
	}{
		{"127.0.0.1:PORT", "127.0.0.1:PORT", true},
		{"127.0.0.1:PORT", "0.0.0.0:PORT", true},
		{":PORT", "127.0.0.9:PORT", true},
		{":PORT", "[::1]:PORT", true},
		{"0.0.0.0:PORT", "127.0.0.1:PORT", true},
		{"0.0.0.0:PORT", "[::1]:PORT", false},
		{"[::]:PORT", "[::1]:PORT", true},
		{"[::]:PORT", "127.0.0.1:PORT", false},
		{":PORT", "192.0.2.1:PORT", false},
		{"127.0.0.1:PORT", "127.0.0.2:PORT", false},
		{path, path, true},
		{path, path + "2", false},
	} {
		var listen, to string
		server, err := onFreePort(t, func(port string) *proxy.Config {
			listen, to = strings.ReplaceAll(c.listen, "PORT", port), strings.ReplaceAll(c.to, "PORT", port)
			return &proxy.Config{
				Loops:  loopsOf(t),
				Listen: []socket.Address{parse(t, listen)}, To: []socket.Address{parse(t, to)}, MaxConnections: 1,
			}
		})
		if c.self != errors.Is(err, socket.ErrAddress) || !c.self && err != nil {
			t.Errorf("listening on %s, the target %s: %v", listen, to, err)
		}
		if err == nil {
			run(t, server).stop()
		}
	}
}

// A name is looked at once it was resolved: one client is one connection.
func TestNameThatIsTheProxyItself(t *testing.T) { eachDriver(t, testNameThatIsTheProxyItself) }

func testNameThatIsTheProxyItself(t *testing.T) {
	var port string
	server, err := onFreePort(t, func(free string) *proxy.Config {
		port = free
		return &proxy.Config{
			Loops:  loopsOf(t),
			Listen: []socket.Address{parse(t, ":"+port)}, To: []socket.Address{parse(t, "localhost:"+port)}, MaxConnections: 1000,
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, server)
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) { // which may come while it connects
		t.Errorf("the client gets %v, want a reset", err)
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if got, want := r.Summary().Connections, (proxy.Connections{Accepted: 1, Refused: 1}); got != want {
		t.Errorf("connections are %+v, want %+v", got, want)
	}
}
