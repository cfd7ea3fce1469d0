package server_test

import (
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

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
	endpoint := sockets.Server(t, func(c net.Conn) {
		b := make([]byte, 64)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			if b[0] == '?' {
				// The end of the wait is that of the session: an answer would leave it to the client, for as
				// long as a busy machine keeps that from its end.
				<-release
				_ = c.(*net.TCPConn).SetLinger(0)
				return
			}
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
		}
	})
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, laneConfig(endpoint, "lane: require"))}
	c := client(t, r.At("l"))
	r.leaves(t, c)
	if _, err := c.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	kept := func(window time.Duration, least float64) func() bool {
		return func() bool {
			w, err := r.Why(t.Context(), admin.WhyQuery{For: window})
			if err != nil {
				t.Fatal(err)
			}
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
			if err := filter(sockets.FD(t, server), syscall.SO_ATTACH_FILTER); err != nil {
				t.Fatal(err)
			}
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
	endpoint := sockets.Server(t, func(c net.Conn) {
		b := make([]byte, 64)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			switch b[0] {
			case '!':
				_ = c.(*net.TCPConn).SetLinger(0)
				return
			case '.':
				return
			}
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
		}
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
