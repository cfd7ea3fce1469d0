package lane_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/internal/frame"
)

// wantReset reads until the connection is reset.
func wantReset(t *testing.T, name string, c *net.TCPConn) {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: %v, want a reset", name, err)
	}
}

// TestEnds: a session in the lane ends in the way in which its endpoints end it.
func TestEnds(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for name, end := range map[string]struct {
		do            func(p pair)
		client, reset bool // whether the client sees it, and whether it is a reset
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
	condition.Await(t, "nothing lingers", func() bool { return l.Stats().Lane == 0 })
}

// TestBytesOfAReset: bytes that have arrived count even if a reset comes before they are acknowledged. The
// acknowledgement takes an endpoint a while.
func TestBytesOfAReset(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for range 20 {
		p := joined(t, l, "tcp", "127.0.0.1:0")
		p.talk(t)
		n, err := p.client.Write([]byte("has arrived"))
		must.Do(t, errors.Join(err, p.client.SetLinger(0)))
		p.sent[0] += uint64(n)
		await(t, p.server)
		p.client.Close()
		p.Wait()
		if p.Bytes() != *p.sent {
			t.Errorf("%v bytes counted, want %v", p.Bytes(), *p.sent)
		}
	}
}

// await waits until a connection has bytes to read, and does not read them.
func await(t *testing.T, c *net.TCPConn) {
	raw := must.Get(c.SyscallConn())(t)
	var b [1]byte
	must.Do(t, raw.Read(func(fd uintptr) bool {
		n, _, _ := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n > 0
	}))
}

// TestResetBySession: Reset and Lane.Close reset both sides at once, in an idle session and in a session with
// bytes that nobody has acknowledged yet.
func TestResetBySession(t *testing.T) {
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
			for err := error(nil); ; { // the reset comes after the bytes that have arrived
				if _, err = p.server.Read(make([]byte, 1<<16)); err != nil {
					must.Is(t, err, syscall.ECONNRESET)
					break
				}
			}
		})
	}
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	must.Do(t, l.Close())
	wantReset(t, "client after Close", p.client)
	wantReset(t, "server after Close", p.server)
	must.Fail(l.Join(p.client, p.server, nil))(t, net.ErrClosed)
}

// TestPortIsHeld: while a session is in the lane, this host makes no other connection between the same
// addresses.
func TestPortIsHeld(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	at := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer at.Close()
	p := joinedTo(t, l, at)
	p.talk(t)
	condition.Await(t, "the sockets are closed", func() bool { return l.Stats().Left == 1 })
	d := net.Dialer{LocalAddr: p.server.RemoteAddr(), Timeout: condition.Patience, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) }), err)
	}}
	dials := func() error {
		c, err := d.Dial("tcp", at.Addr().String())
		if err == nil {
			c.Close()
		}
		return err
	}
	held := func(when string) {
		t.Helper()
		if err := dials(); !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a second connection from the same address, %s: %v", when, err)
		}
	}
	held("in the lane")
	p.exchange(t, []byte("still there"), p.client, p.server)
	p.server.Close()
	p.client.Close()
	p.Wait()
	held("while the session lingers")
	condition.Await(t, "the address is free again", func() bool { return dials() == nil })
}

// TestBusy: a device can have only one lane.
func TestBusy(t *testing.T) {
	if !alone(t) {
		return
	}
	open(t, "lo")
	if _, err := lane.Open(lane.Config{Devices: []string{"lo"}}); !errors.Is(err, lane.ErrBusy) || !strings.HasSuffix(err.Error(), fmt.Sprintf("by process %d", os.Getpid())) {
		t.Errorf("a second lane: %v", err)
	}
	if _, err := lane.Open(lane.Config{Devices: []string{"nothing0"}}); err == nil {
		t.Error("a device that does not exist is no error")
	}
}

// numbers returns the next sequence numbers that a connection sends and expects.
func numbers(t *testing.T, c *net.TCPConn) (send, receive uint32) {
	t.Helper()
	fd := sockets.FD(t, c)
	const repairQueue, queueSequence = 20, 21 // TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ
	next := func(queue int) uint32 {
		must.Do(t, sys.SetsockoptInt(fd, sys.IPPROTO_TCP, repairQueue, queue))
		return uint32(must.Get(sys.GetsockoptInt(fd, sys.IPPROTO_TCP, queueSequence))(t))
	}
	must.Do(t, sys.Repair(fd, true))
	receive, send = next(1), next(2)
	must.Do(t, sys.Repair(fd, false))
	return send, receive
}

// TestForgedEnd: if a client sends packets that its endpoint refuses, and by them makes the lane end the
// session as reset, the client is reset. Nothing is carried that is not accounted for.
func TestForgedEnd(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for name, forge := range map[string]func(f *forger){
		"ahead": func(f *forger) {
			f.send(9000, 0x18, "z", true)
			f.send(9001, 4, "", false)
		},
		"with a wrong checksum": func(f *forger) { f.send(0, 4, "", true) },
	} {
		t.Run(name, func(t *testing.T) {
			p := joined(t, l, "tcp", "127.0.0.1:0")
			p.talk(t)
			forge(newForger(t, p))
			p.Wait()
			wantReset(t, "server", p.server) // the server sends nothing
			wantReset(t, "client", p.client)
		})
	}
}

// TestForgedStall: a client that keeps bytes back and repeats the bytes behind them does not make its endpoint
// time out. A client whose endpoint is silent does.
func TestForgedStall(t *testing.T) {
	if !alone(t) {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 16, UserTimeout: 200 * time.Millisecond}))(t)
	defer l.Close()
	p, silent := joined(t, l, "tcp", "127.0.0.1:0"), joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	silent.talk(t)
	f := newForger(t, p)
	repeat := func() { f.send(100, 0x18, "z", false) }
	repeat()
	repeat()
	deafen(t, silent.server)
	ended := make(chan error, 1)
	go func() { ended <- writes(silent.client) }()
	for pace := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case err := <-ended: // its stall began after the stall of the other session
			pace.Stop()
			must.Is(t, err, syscall.ECONNRESET)
			p.exchange(t, []byte("here still"), p.client, p.server)
			if v, _ := p.Look(); !p.Left() || v.Ends[0].Repeated < 2 {
				t.Errorf("left %v, %+v", p.Left(), v)
			}
			return
		case <-pace.C:
			repeat()
		}
	}
}

// A forger sends packets in the name of a client.
type forger struct {
	t      *testing.T
	raw    int
	packet frame.Packet
	next   uint32
}

func newForger(t *testing.T, p pair) *forger {
	t.Helper()
	raw := must.Get(syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.IPPROTO_RAW))(t)
	t.Cleanup(func() { syscall.Close(raw) })
	send, receive := numbers(t, p.client)
	return &forger{t, raw, frame.Packet{
		From: p.client.LocalAddr().(*net.TCPAddr).AddrPort(), To: p.client.RemoteAddr().(*net.TCPAddr).AddrPort(), Ack: receive, Window: 1000,
	}, send}
}

// send sends a packet at a number ahead of the client's next one. A damaged packet has a wrong checksum, so the
// endpoint refuses it.
func (f *forger) send(ahead uint32, flags byte, payload string, damaged bool) {
	f.t.Helper()
	f.packet.Seq, f.packet.Flags, f.packet.Payload = f.next+ahead, flags, []byte(payload)
	b := f.packet.Bytes()
	if damaged {
		b[36] ^= 0x55
	}
	must.Do(f.t, syscall.Sendto(f.raw, b, 0, sockaddr(f.packet.To)))
}

// TestLingeringIsBounded: sessions that have ended hold at most a quarter of the slots, and as many
// descriptors.
func TestLingeringIsBounded(t *testing.T) {
	if !alone(t) {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 16, Linger: time.Hour}))(t)
	defer l.Close()
	for range 12 {
		p := joined(t, l, "tcp", "127.0.0.1:0")
		p.talk(t)
		p.client.Close()
		must.Get(io.Copy(io.Discard, p.server))(t)
		p.server.Close()
		p.Wait()
		if p.Refused() != lane.None {
			t.Fatal(p.Refused())
		}
	}
	condition.Await(t, "a quarter lingers", func() bool { return len(l.Sessions()) <= 4 })
}

func sockaddr(a netip.AddrPort) *syscall.SockaddrInet4 {
	return &syscall.SockaddrInet4{Addr: a.Addr().As4()}
}

// A blind is a third party that knows the addresses of a session, but none of its numbers.
type blind struct {
	*forger
	random *rand.Rand
}

// send sends packets of each kind, with numbers outside of every window.
func (b *blind) send(p pair) {
	b.t.Helper()
	const least = 1 << 24
	for _, c := range []struct {
		flags   byte
		payload string
	}{{0x18, "z"}, {0x08, "z"}, {0x10, ""}, {0x11, ""}, {0x11, "z"}, {0x01, ""}, {0x14, ""}, {0x04, ""}, {0x02, ""}, {0x12, ""}, {0x38, "z"}, {0x00, "z"}} {
		b.packet.Ack = b.random.Uint32()
		b.forger.send(least+b.random.Uint32N(1<<32-2*least), c.flags, c.payload, false)
		if p.Left() {
			b.t.Fatalf("a packet without a number has the session leave: flags %#x", c.flags)
		}
	}
}

// hears lets a connection receive its packets again.
func hears(t *testing.T, c *net.TCPConn) {
	t.Helper()
	const detach = 27 // SO_DETACH_FILTER
	must.Do(t, sys.SetsockoptInt(sockets.FD(t, c), syscall.SOL_SOCKET, detach, 0))
}

// TestBlindMayLeave: a third party without the numbers cannot make a session leave that has come back, whether
// the session is at rest, has bytes on the way, or has bytes that nobody reads. If its packets have kept the
// session in user space, one MayLeave is enough for the session to leave, however many packets there were.
func TestBlindMayLeave(t *testing.T) {
	if !alone(t) {
		return
	}
	p := joined(t, open(t, "lo"), "tcp", "127.0.0.1:0")
	p.talk(t)
	random := rand.New(rand.NewPCG(1, 2))
	back := func() *blind {
		t.Helper()
		p.comesBack(t, time.Second)
		return &blind{newForger(t, p), random}
	}
	attacked := func(third *blind) {
		t.Helper()
		for range 50 {
			p.MayLeave()
			third.send(p)
		}
	}
	leaves := func() {
		t.Helper()
		p.MayLeave()
		condition.Await(t, "the packets keep it in user space, or are forgotten", func() bool {
			p.both(t)
			return p.Left() || p.Refused() == lane.InFlight || p.Refused() == lane.ResetSeen
		})
		p.MayLeave()
		p.talk(t)
	}

	third := back()
	for range 50 {
		third.send(p)
		p.MayLeave()
	}
	leaves()

	third = back() // bytes are on the way: the server's socket takes no packet
	deafen(t, p.server)
	must.Get(p.client.Write([]byte("on the way")))(t)
	condition.Await(t, "they are relayed", func() bool { return p.Bytes()[0] == p.sent[0]+uint64(len("on the way")) })
	attacked(third)
	hears(t, p.server)
	got := make([]byte, len("on the way"))
	if _, err := io.ReadFull(p.server, got); err != nil || string(got) != "on the way" {
		t.Fatalf("%q, %v", got, err)
	}
	p.sent[0] += uint64(len(got))
	leaves()

	third = back() // bytes wait in the sockets, and in user space
	big := make([]byte, 16<<20)
	for i := range big {
		big[i] = byte(random.Uint32())
	}
	written := make(chan error, 1)
	go func() {
		_, err := p.client.Write(big)
		written <- err
	}()
	if _, err := io.ReadFull(p.server, got[:1]); err != nil || got[0] != big[0] {
		t.Fatal(err)
	}
	last, looks := uint64(0), 0
	condition.Await(t, "the flow stands still", func() bool {
		n := p.Bytes()[0]
		if n != last {
			last, looks = n, 0
		}
		looks++
		return looks > 100
	})
	attacked(third)
	rest := make([]byte, len(big)-1)
	if _, err := io.ReadFull(p.server, rest); err != nil || !bytes.Equal(rest, big[1:]) {
		t.Fatal("bytes are missing, doubled or others:", err)
	}
	must.Do(t, <-written)
	leaves()
	p.finish(t, len(big))
}

// TestMayLeaveInGrace: a MayLeave in a grace period forgets the packets before it too: the session gets another
// period, and then leaves.
func TestMayLeaveInGrace(t *testing.T) {
	if !alone(t) {
		return
	}
	p := joined(t, open(t, "lo"), "tcp", "127.0.0.1:0")
	p.talk(t)
	p.comesBack(t, time.Second)
	newForger(t, p).send(1<<30, 0x14, "", false)
	condition.Await(t, "the RST before MayLeave is forgotten", func() bool {
		lane.Regrace(p.Session)
		p.MayLeave()
		return lane.EndGrace(p.Session)
	})
	if lane.EndGrace(p.Session) {
		t.Fatal("it needs a third period")
	}
	p.talk(t)
}

// TestBlindPackets: if the socket of a session in user space refuses a packet because its number is out of the
// window, the session stays there until MayLeave. This holds whether the session has come back or has
// never left.
func TestBlindPackets(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for name, c := range map[string]struct {
		flags   byte
		payload string
		want    lane.Reason
	}{
		"data":                       {0x18, "z", lane.InFlight},
		"an end of file":             {0x11, "", lane.InFlight},
		"an RST":                     {0x14, "", lane.ResetSeen},
		"data, without ACK":          {0x08, "z", lane.InFlight},
		"an RST that has no ACK too": {0x04, "", lane.ResetSeen},
	} {
		for _, left := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				p := joined(t, l, "tcp", "127.0.0.1:0")
				if left {
					p.talk(t)
				}
				p.comesBack(t, time.Second)
				newForger(t, p).send(1<<30, c.flags, c.payload, false)
				p.both(t)
				p.MayLeave()
				condition.Await(t, "the packet keeps it in user space, or is forgotten", func() bool {
					p.both(t)
					return p.Left() || p.Refused() == c.want
				})
				p.MayLeave()
				p.talk(t)
				must.Do(t, p.ComeBack(0))
				p.exchange(t, []byte("here"), p.client, p.server)
			})
		}
	}
}
