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

// die closes the port first, so that nobody is connected to afterwards, and then cuts the sessions.
func (m *mortal) die() {
	m.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.sessions {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// TestDeathIsFoundByChecks: an endpoint whose process dies with sessions in flight, and is back
// before a client has tried to connect to it, serves as soon as it is back. A check finds out at
// once that it refuses connections, so the ejection ends with the next one that connects, and not
// with its time.
func TestDeathIsFoundByChecks(t *testing.T) {
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
	r.Until("all are connected to it", func() bool { return r.Status().Upstreams[0].Endpoints[0].Active == int64(len(clients)) })
	server.die()
	for _, c := range clients {
		gone(t, c)
	}
	r.Until("it is ejected", func() bool { return r.Status().Upstreams[0].Endpoints[0].State != "up" })
	r.Until("a check has found it out", func() bool { return r.Server.ChecksFailed() > 0 })
	serverAt(t, port, "after")
	r.Until("clients are served by it", func() bool { return served(r.At("l")) == "after" })
}
