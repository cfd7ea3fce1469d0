package server_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestLaneUserTimeout: a session whose client or endpoint has vanished with bytes on the way to it ends by user_timeout in the lane as
// it does in user space: it is counted as failed at that side, the session log has the error, and the other side is reset.
func TestLaneUserTimeout(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint, far := laneEndpoint(t)
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, fmt.Sprintf(`
lane: {devices: [lo], sessions: 64, after: 5ms}
listeners:
  - {name: "off", bind: "127.0.0.1:0", upstream: u, timeouts: {idle: 1h}, socket: {keepalive: 0s, user_timeout: 300ms}}
  - {name: "auto", bind: "127.0.0.1:0", upstream: u, lane: auto, timeouts: {idle: 1h}, socket: {keepalive: 0s, user_timeout: 300ms}}
upstreams: [{name: u, endpoints: [%q], health_check: off, outlier_detection: off}]`, endpoint))}
	for _, listener := range []string{"off", "auto"} {
		r.vanishes(t, listener, far, false)
		r.vanishes(t, listener, far, true)
		if n := closesOf(r, listener); n != ([tally.Closes]int64{tally.ClientFailed: 1, tally.EndpointFailed: 1}) {
			t.Errorf("%s: %v", listener, n)
		}
	}
	if st := r.Status().Lane; st.Left != 2 || st.Reset != 2 {
		t.Errorf("%+v", st)
	}
}

// vanishes has one side of a session be deaf, and expects the session's end.
func (r *rig) vanishes(t *testing.T, listener string, accepted <-chan *net.TCPConn, clients bool) {
	t.Helper()
	c := client(t, r.At(listener))
	server := <-accepted
	defer server.Close()
	if listener == "auto" {
		r.leavesFor(t, c, server)
	} else {
		passes(t, c, server)
		r.Until("the endpoint's socket has its options", func() bool {
			fd, ok := socketBetween(t, server.RemoteAddr(), server.LocalAddr())
			return ok && optionsOf(t, fd)["TCP_USER_TIMEOUT"] == "300"
		})
	}
	from, to, want := c, server, tally.EndpointFailed
	if clients {
		from, to, want = server, c, tally.ClientFailed
	}
	if err := filter(sockets.FD(t, to), syscall.SO_ATTACH_FILTER); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Write([]byte("unheard")); err != nil {
		t.Fatal(err)
	}
	if err := gone(t, from); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: the side that is there: %v", listener, err)
	}
	r.Until("its end is counted", func() bool { return closesOf(r, listener)[want] == 1 })
	r.Until("the session has ended", func() bool { return r.session(t) == nil && r.Status().Connections.Active == 0 })
	r.Logs("session ended", "client="+c.LocalAddr().String(), syscall.ETIMEDOUT.Error())
}
