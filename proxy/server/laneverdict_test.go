package server_test

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestLaneVerdict: a session that has left user space has a live verdict, and one at its end, in the log and in the
// seconds of its endpoint.
func TestLaneVerdict(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	release := make(chan struct{})
	endpoint := answering(t, func(c *net.TCPConn, b []byte) bool {
		if b[0] != '?' {
			return echoPiece(c, b)
		}
		// The end of the wait is that of the session: an answer would leave it to the client, for as
		// long as a busy machine keeps that from its end.
		<-release
		_ = c.SetLinger(0)
		return false
	})
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, laneConfig(endpoint, "lane: require"))}
	c := client(t, r.At("l"))
	r.leaves(t, c)
	sends(t, c, "?")
	kept := func(window time.Duration, least float64) func() bool {
		return func() bool {
			w := r.why(admin.WhyQuery{For: window})
			return w.Verdict == "endpoint" && len(w.Sessions) == 1 && w.Sessions[0].EndpointLeg != nil && w.Sessions[0].Shares["endpoint"] >= least
		}
	}
	r.Until("the endpoint keeps the session waiting, now", kept(100*time.Millisecond, 0))
	// Longer than all that was before: the echoes until the session has left may have taken seconds, most of them
	// the client's. From there on the share can only grow.
	r.Until("the endpoint has kept the session waiting for most of its time", kept(0, 0.6))
	close(release)
	if err := gone(t, c); err == nil {
		t.Error("the endpoint's reset does not come through")
	}
	c.Close()
	r.Until("the session has ended", func() bool { return r.session(t) == nil })
	r.Logs("session ended", "verdict=endpoint")
	if by := r.Status().Upstreams[0].Endpoints[0].Limited; by["endpoint"] == 0 {
		t.Errorf("seconds by verdict: %v", by)
	}
}

// TestLaneEndedBy: the end of a session in the lane counts for the side that has reset it, or has ended first.
func TestLaneEndedBy(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint := answering(t, func(c *net.TCPConn, b []byte) bool {
		if b[0] == '!' {
			_ = c.SetLinger(0)
		}
		return b[0] != '!' && b[0] != '.' && echoPiece(c, b)
	})
	r := start(t, laneConfig(endpoint, "lane: require"))
	for _, one := range []struct {
		want tally.Close
		end  func(c *net.TCPConn)
	}{
		{tally.ClientReset, func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() }},
		{tally.EndpointReset, func(c *net.TCPConn) { _, _ = c.Write([]byte("!")); _ = gone(t, c) }},
		{tally.ClientClosed, func(c *net.TCPConn) { c.Close() }},
		{tally.EndpointClosed, func(c *net.TCPConn) { _, _ = c.Write([]byte(".")); _ = gone(t, c); c.Close() }},
	} {
		c := client(t, r.At("l"))
		r.leaves(t, c)
		one.end(c)
		r.Until("the end is counted", func() bool { return closesOf(r, "l")[one.want] == 1 })
	}
}

// TestLaneAnswers: an endpoint that answers in the lane answers clients: it is not ejected because others have waited for an answer in vain,
// from two addresses, again and again.
func TestLaneAnswers(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	answers := func(all bool) string {
		return answering(t, func(c *net.TCPConn, b []byte) bool { return !all && b[0] == '?' || echoPiece(c, b) })
	}
	r := start(t, fmt.Sprintf(`
lane: {devices: [lo], sessions: 64, after: 5ms}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, lane: require}]
upstreams: [{name: u, endpoints: [{name: all, address: %q}, {name: some, address: %q}]}]`, answers(true), answers(false)))
	stop := make(chan struct{})
	var served sync.WaitGroup
	const sessions = 6 // three at each endpoint
	for range sessions {
		c := sockets.Dial(t, r.At("l"))
		served.Go(func() {
			defer c.Close()
			b := make([]byte, 8)
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = c.SetDeadline(time.Now().Add(condition.Patience))
				if _, err := c.Write(b); err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Read(b); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	r.Until("they have left", func() bool { return r.Status().Lane.Left == sessions })
	for range 300 { // they usually answer
		c := client(t, r.At("l"))
		echoes(t, c, "soon")
		c.Close()
	}
	const rounds, clients, waits = 5, 24, 2 * time.Second
	for round := range rounds {
		var asking sync.WaitGroup
		for i := range clients {
			asking.Go(func() {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/2%2))}}
				c, err := d.Dial("tcp", r.At("l"))
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(waits))
				_, _ = c.Write([]byte("?"))
				_, _ = c.Read(make([]byte, 1)) // for as long as it has patience
			})
		}
		asking.Wait()
		if e := r.Endpoint("u", "some"); e.State != admin.Up {
			t.Errorf("after %d rounds it is %s: %s", round+1, e.State, e.Why)
			break
		}
	}
	close(stop)
	served.Wait()
}

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

// TestLaneKeepalive: a session in the lane whose endpoint has vanished ends by socket.keepalive although nobody sends anything.
func TestLaneKeepalive(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint, far := laneEndpoint(t)
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, fmt.Sprintf(`
lane: {devices: [lo], sessions: 64, after: 5ms}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, lane: auto, timeouts: {idle: 1h}, socket: {keepalive: 1s, user_timeout: 1s}}]
upstreams: [{name: u, endpoints: [%q], health_check: off, outlier_detection: off}]`, endpoint))}
	c := client(t, r.At("l"))
	server := <-far
	defer server.Close()
	r.leavesFor(t, c, server)
	filter(t, sockets.FD(t, server), syscall.SO_ATTACH_FILTER)
	isReset(t, c)
	r.Until("the session has ended", func() bool { return r.session(t) == nil && closesOf(r, "l")[tally.EndpointFailed] == 1 })
	r.Logs("session ended", "client="+c.LocalAddr().String(), syscall.ETIMEDOUT.Error())
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
	filter(t, sockets.FD(t, to), syscall.SO_ATTACH_FILTER)
	sends(t, from, "unheard")
	isReset(t, from)
	r.Until("its end is counted", func() bool { return closesOf(r, listener)[want] == 1 })
	r.Until("the session has ended", func() bool { return r.session(t) == nil && r.Status().Connections.Active == 0 })
	r.Logs("session ended", "client="+c.LocalAddr().String(), syscall.ETIMEDOUT.Error())
}
