package server_test

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// A mortal is a server at a port whose process ends when it dies: its sessions are cut, and its
// port refuses connections.
type mortal struct {
	net.Listener
	mu       sync.Mutex
	sessions []net.Conn
}

// newMortal starts a server that reads and answers nothing.
func newMortal(t *testing.T, port string) *mortal {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	m := &mortal{Listener: ln}
	sockets.Serve(t, ln, func(c net.Conn) {
		m.mu.Lock()
		m.sessions = append(m.sessions, c)
		m.mu.Unlock()
		_, _ = c.Read(make([]byte, 1))
	})
	return m
}

// die closes the port first, so that no client connects afterwards, and then cuts the sessions.
func (m *mortal) die() {
	m.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.sessions {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// TestDeathIsFoundByChecks: an endpoint's process dies with sessions in flight and is back before
// a client has tried to connect to it. The endpoint serves as soon as it is back. A check finds
// at once that it refuses connections, so the ejection ends with the next successful check, not
// with its time.
func TestDeathIsFoundByChecks(t *testing.T) {
	t.Parallel()

	port := sockets.Port(t)
	server := newMortal(t, port)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: "127.0.0.1:%s", name: a}]
    health_check: {interval: 1h, fast_interval: 100ms, fall: 1000}
    outlier_detection: {consecutive_failures: 3, base_ejection_time: 1h, max_ejection_time: 1h, max_ejected: 1}
    fallback: {respond: sorry.txt}
`, port), "sorry.txt", "sorry\n")
	clients := make([]net.Conn, 8)
	for i := range clients {
		clients[i] = client(t, r.At("l"))
	}
	r.Until("all clients are connected to the endpoint", func() bool { return r.Status().Upstreams[0].Endpoints[0].Active == int64(len(clients)) })
	server.die()
	for _, c := range clients {
		gone(t, c)
	}
	r.Until("the endpoint is ejected", func() bool { return r.Status().Upstreams[0].Endpoints[0].State != "up" })
	r.Until("a check has failed", func() bool { return r.Server.ChecksFailed() > 0 })
	serverAt(t, port, "after")
	r.Until("the endpoint serves clients", func() bool { return served(r.At("l")) == "after" })
}
