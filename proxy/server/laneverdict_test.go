package server_test

import (
	"fmt"
	"io"
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

// TestLaneVerdictOfVanished: an endpoint that has vanished, so that what is sent to it is dropped and the client sends it again, is the
// doing of the way to it, in the lane as in user space: be it a few bytes or most of the endpoint's window, after many that have arrived.
func TestLaneVerdictOfVanished(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint, far := laneEndpoint(t)
	for _, c := range []struct {
		lane string
		size int
		most float64 // from the second repetition on its share may fall by that: in user space the time of the process counts as well
	}{{"off", 7, 1}, {"require", 7, 0.02}, {"require", 50_000, 0.02}} {
		t.Run(fmt.Sprint(c.lane, " ", c.size), func(t *testing.T) {
			r := start(t, laneConfig(endpoint, "timeouts: {idle: 1h}, lane: "+c.lane))
			near := client(t, r.At("l"))
			server := <-far
			defer server.Close()
			if c.lane != "off" {
				r.leavesFor(t, near, server)
			}
			for range 300 {
				passes(t, near, server)
			}
			filter(t, sockets.FD(t, server), syscall.SO_ATTACH_FILTER)
			if _, err := near.Write(make([]byte, c.size)); err != nil {
				t.Fatal(err)
			}
			r.blames(t, "endpoint_network", c.most)
		})
	}
}

// blames expects a verdict on the one session whose peer sends again to the endpoint, and a share of it that falls no more.
func (r *rig) blames(t *testing.T, verdict string, most float64) {
	t.Helper()
	share := 0.0
	r.Until("the verdict is "+verdict, func() bool {
		w, err := r.Why(t.Context(), admin.WhyQuery{})
		if err != nil || len(w.Sessions) != 1 {
			t.Fatal(w.Sessions, err)
		}
		one := w.Sessions[0]
		if one.EndpointLeg == nil || one.EndpointLeg.Retransmitted < 2 {
			return false
		}
		if one.Shares[verdict] < share-most {
			t.Fatalf("%s had a share of %v, and has %v", verdict, share, one.Shares)
		}
		share = one.Shares[verdict]
		if most == 1 {
			return mostOf(one.Shares, verdict)
		}
		return w.Verdict == verdict && share >= 0.8
	})
}

// mostOf reports whether a cause has most of the time but for that of the proxy, which has a part of it on a machine that is busy with others.
func mostOf(shares map[string]float64, verdict string) bool {
	for cause, share := range shares {
		if cause != verdict && cause != "proxy" && share >= shares[verdict] {
			return false
		}
	}
	return shares[verdict] > 0
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

// TestLaneVerdictOfPauses: pauses that are shorter than those of a delayed acknowledgement are the pausing program's, not the way's: an
// acknowledgement that waits for the next data is no long way.
func TestLaneVerdictOfPauses(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	const pause = 20 * time.Millisecond // of a program at work
	for verdict, far := range map[string]time.Duration{"endpoint": pause, "client": 0} {
		t.Run(verdict, func(t *testing.T) {
			r := start(t, laneConfig(answering(t, func(c *net.TCPConn, b []byte) bool {
				time.Sleep(far)
				return echoPiece(c, b)
			}), "lane: require"))
			c := client(t, r.At("l"))
			r.leaves(t, c)
			most := 0.0
			for began := time.Now(); most < 0.7; {
				time.Sleep(pause - far)
				echoes(t, c, "there and back")
				w, err := r.Why(t.Context(), admin.WhyQuery{})
				if err != nil || len(w.Sessions) != 1 {
					t.Fatal(w.Sessions, err)
				}
				if most = w.Sessions[0].Shares[verdict]; time.Since(began) > condition.Patience {
					t.Fatalf("%s after %v: %v", w.Verdict, time.Since(began), w.Sessions[0].Shares)
				}
			}
		})
	}
}

// TestLaneEndedFirst: an endpoint ends, and resets the client that goes on sending, as one does that is killed: the session log has both, in the lane as
// in user space.
func TestLaneEndedFirst(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint := answering(t, func(c *net.TCPConn, b []byte) bool {
		if b[0] != '.' {
			return echoPiece(c, b)
		}
		_ = c.CloseWrite()
		_, _ = c.Read(b) // bytes that no one wants any more
		_ = c.SetLinger(0)
		return false
	})
	for _, use := range []string{"require", "off"} {
		r := start(t, "session_log: {to: sessions.log, format: json}\n"+laneConfig(endpoint, "lane: "+use))
		c := client(t, r.At("l"))
		if use == "require" {
			r.leaves(t, c)
		} else {
			echoes(t, c, "x")
		}
		_, _ = c.Write([]byte("."))
		_ = c.SetReadDeadline(time.Now().Add(condition.Patience))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Fatalf("lane: %s: the client reads %d bytes, %v", use, n, err)
		}
		_, _ = c.Write([]byte("more"))
		r.Until("it has ended", func() bool { return r.Status().Connections.Active == 0 })
		at := c.LocalAddr().String()
		must(t, r.End())
		if line := r.lines(t)[at]; line["reason"] != "reset" || line["culprit"] != "endpoint" || line["ended_first"] != "endpoint" {
			t.Errorf("lane: %s: %v", use, line)
		}
	}
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
