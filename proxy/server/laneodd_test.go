package server_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/penstock/penstock/lane"
)

// TestLaneOdd: a session whose client sends data with options of IP stays in user space, but not for good: it leaves some time after the last of
// it, also one that has come back before.
func TestLaneOdd(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r := withLane(t, "lane: require")
	c := client(t, r.At("l"))
	defer c.Close()
	r.kept(t, c)
	r.leaves(t, c)
	if _, err := r.ReturnLane("test"); err != nil {
		t.Fatal(err)
	}
	r.kept(t, c)
	r.leaves(t, c)
}

// kept has a session stay in user space by data with options.
func (r *rig) kept(t *testing.T, c net.Conn) {
	t.Helper()
	b := []byte("there and back")
	before := r.Status().Lane.Stays[lane.ResetSeen.String()]
	r.Until("packets with options have kept it in user space", func() bool {
		withOptions(t, c, "\x01\x01\x01\x01")
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		withOptions(t, c, "") // the acknowledgement has none
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		return r.Status().Lane.Stays[lane.ResetSeen.String()] > before
	})
	if s := r.session(t); s.Engine == "lane" {
		t.Fatal("it has left")
	}
}

// withOptions has a connection send packets with those options of IP, and acknowledge the next that come at once.
func withOptions(t *testing.T, c net.Conn, options string) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	e := raw.Control(func(fd uintptr) {
		err = errors.Join(syscall.SetsockoptString(int(fd), syscall.IPPROTO_IP, syscall.IP_OPTIONS, options), syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1))
	})
	if e != nil || err != nil {
		t.Fatal(e, err)
	}
}
