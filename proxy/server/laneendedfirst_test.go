package server_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestLaneEndedFirst: an endpoint ends, and resets the client that goes on sending, as one does that is killed: the session log has both, in the lane as
// in user space.
func TestLaneEndedFirst(t *testing.T) {
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
			if b[0] == '.' {
				break
			}
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
		}
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = c.Read(b) // bytes that no one wants any more
		_ = c.(*net.TCPConn).SetLinger(0)
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
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Fatalf("lane: %s: the client reads %d bytes, %v", use, n, err)
		}
		_, _ = c.Write([]byte("more"))
		r.Until("it has ended", func() bool { return r.Status().Connections.Active == 0 })
		at := c.LocalAddr().String()
		if err := r.End(); err != nil {
			t.Fatal(err)
		}
		if line := r.lines(t)[at]; line["reason"] != "reset" || line["culprit"] != "endpoint" || line["ended_first"] != "endpoint" {
			t.Errorf("lane: %s: %v", use, line)
		}
	}
}
