package lane_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/lossy"
)

// wantReset reads until the connection is reset.
func wantReset(t *testing.T, name string, c *net.TCPConn) {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: %v, want a reset", name, err)
	}
}

// TestEnds: a session in the lane ends as its endpoints have it end.
func TestEnds(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for name, end := range map[string]struct {
		do            func(p pair)
		client, reset bool // who sees it; it is a reset
	}{
		"the client resets":              {func(p pair) { p.client.SetLinger(0); p.client.Close() }, false, true},
		"the server resets":              {func(p pair) { p.server.SetLinger(0); p.server.Close() }, true, true},
		"the server has unread bytes":    {func(p pair) { p.client.Write([]byte("never read")); await(t, p.server); p.server.Close() }, true, true},
		"both end":                       {func(p pair) { p.server.CloseWrite(); p.client.CloseWrite() }, true, false},
		"the client closes, then writes": {func(p pair) { p.client.Close(); p.server.Write([]byte("x")) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := joined(t, l, "tcp", "127.0.0.1:0")
			p.talk(t)
			results := l.Stats()
			end.do(p)
			seen := p.server
			if end.client {
				seen = p.client
			}
			if end.reset && name != "the client closes, then writes" {
				wantReset(t, name, seen)
			}
			p.Wait()
			if st := l.Stats(); st.Reset-results.Reset != uint64(btoi(end.reset)) || st.Ended-results.Ended != 1 {
				t.Errorf("%+v, before %+v", st, results)
			}
		})
	}
	until(t, "nothing lingers", func() bool { return l.Stats().Lane == 0 })
}

// TestBytesOfAReset: bytes that have arrived count though a reset comes before they are acknowledged, which takes an endpoint a while.
func TestBytesOfAReset(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for range 20 {
		p := joined(t, l, "tcp", "127.0.0.1:0")
		p.talk(t)
		n, err := p.client.Write([]byte("has arrived"))
		if err := errors.Join(err, p.client.SetLinger(0)); err != nil {
			t.Fatal(err)
		}
		p.sent[0] += uint64(n)
		await(t, p.server)
		p.client.Close()
		p.Wait()
		if p.Bytes() != *p.sent {
			t.Errorf("%v bytes counted, want %v", p.Bytes(), *p.sent)
		}
	}
}

// await waits until a connection has bytes to be read, and leaves them.
func await(t *testing.T, c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if err := raw.Read(func(fd uintptr) bool {
		n, _, _ := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n > 0
	}); err != nil {
		t.Fatal(err)
	}
}

// TestResetBySession: Reset resets both sides at once, an idle one and one whose bytes nobody has
// acknowledged yet, and so does Close of the lane.
func TestResetBySession(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for name, do := range map[string]func(p pair){
		"idle":          func(pair) {},
		"unread bytes":  func(p pair) { p.client.Write(make([]byte, 1<<20)); p.client.Write([]byte("more")) },
		"in user space": func(pair) {},
	} {
		t.Run(name, func(t *testing.T) {
			p := joined(t, l, "tcp", "127.0.0.1:0")
			if name != "in user space" {
				p.talk(t)
			}
			if name == "unread bytes" {
				p.client.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			}
			do(p)
			p.Reset()
			p.Wait()
			if name != "unread bytes" {
				wantReset(t, "client", p.client)
			}
			for err := error(nil); ; { // after the bytes that have arrived
				if _, err = p.server.Read(make([]byte, 1<<16)); err != nil {
					if !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("server: %v, want a reset", err)
					}
					break
				}
			}
		})
	}
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	wantReset(t, "client after Close", p.client)
	wantReset(t, "server after Close", p.server)
	if _, err := l.Join(p.client, p.server, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Join after Close: %v", err)
	}
}

// TestPortIsHeld: while a session is in the lane, no other connection of this host is made between
// the same addresses.
func TestPortIsHeld(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	p := joinedTo(t, l, at)
	p.talk(t)
	until(t, "the sockets are closed", func() bool { return l.Stats().Left == 1 })
	d := net.Dialer{LocalAddr: p.server.RemoteAddr(), Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) }), err)
	}}
	if c, err := d.Dial("tcp", at.Addr().String()); !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.EADDRINUSE) {
		if err == nil {
			c.Close()
		}
		t.Errorf("a second connection from the same address: %v", err)
	}
	p.exchange(t, []byte("still there"), p.client, p.server)
	p.server.Close()
	p.client.Close()
	p.Wait()
	if c, err := d.Dial("tcp", at.Addr().String()); !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.EADDRINUSE) {
		if err == nil {
			c.Close()
		}
		t.Errorf("a second connection while the session lingers: %v", err)
	}
	until(t, "the address is free again", func() bool {
		c, err := d.Dial("tcp", at.Addr().String())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// TestBusy: a device has one lane.
func TestBusy(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	open(t, "lo")
	if _, err := lane.Open(lane.Config{Devices: []string{"lo"}}); !errors.Is(err, lane.ErrBusy) {
		t.Errorf("a second lane: %v", err)
	}
	if _, err := lane.Open(lane.Config{Devices: []string{"nothing0"}}); err == nil {
		t.Error("a device that there is not is no error")
	}
	if _, err := lane.Open(lane.Config{}); err == nil {
		t.Error("no device is no error")
	}
}

// TestSparedResets: a link that loses everything but resets passes a reset.
func TestSparedResets(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	near, far := connected(t, listener(t, "127.0.0.1:0"))
	six, last := connected(t, listener(t, "[::1]:0"))
	limited(t, near, far, six, last)
	lossyLink(t, "lo", lossy.Rate{Lose: 10_000, SpareResets: true})
	for _, c := range [][2]*net.TCPConn{{near, far}, {six, last}} {
		if _, err := c[1].Write([]byte("lost")); err != nil {
			t.Error(err)
		}
		if err := errors.Join(c[0].SetLinger(0), c[0].Close()); err != nil {
			t.Error(err)
		}
		wantReset(t, "the other end", c[1])
	}
}
