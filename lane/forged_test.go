package lane_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/internal/frame"
)

// numbers returns the sequence numbers that a connection sends and expects next.
func numbers(t *testing.T, c *net.TCPConn) (send, receive uint32) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const repairQueue, queueSequence = 20, 21 // TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ
	if e := raw.Control(func(fd uintptr) {
		set := func(option, value int) {
			if err == nil {
				err = sys.SetsockoptInt(int(fd), sys.IPPROTO_TCP, option, value)
			}
		}
		get := func(queue int) (n int) {
			if set(repairQueue, queue); err == nil {
				n, err = sys.GetsockoptInt(int(fd), sys.IPPROTO_TCP, queueSequence)
			}
			return n
		}
		err = sys.Repair(int(fd), true)
		receive, send = uint32(get(1)), uint32(get(2))
		err = errors.Join(err, sys.Repair(int(fd), false))
	}); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return send, receive
}

// TestForgedEnd: a client that has the lane take its session for reset, by packets that its endpoint refuses, is
// reset. Nothing is carried that is in nobody's account.
func TestForgedEnd(t *testing.T) {
	if !alone(t) {
		return
	}
	p := joined(t, open(t, "lo"), "tcp", "127.0.0.1:0")
	p.talk(t)
	raw, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(raw)
	send, receive := numbers(t, p.client)
	packet := frame.Packet{
		From: p.client.LocalAddr().(*net.TCPAddr).AddrPort(), To: p.client.RemoteAddr().(*net.TCPAddr).AddrPort(),
		Seq: send + 9000, Ack: receive, Flags: 0x18, Window: 1000, Payload: []byte("z"),
	}
	beyond := packet.Bytes()
	beyond[36] ^= 0x55 // the checksum: the endpoint drops it
	packet.Seq, packet.Flags, packet.Payload = send+9001, 4, nil
	for _, b := range [][]byte{beyond, packet.Bytes()} {
		if err := syscall.Sendto(raw, b, 0, sockaddr(packet.To)); err != nil {
			t.Fatal(err)
		}
	}
	p.Wait()
	for err = error(nil); err == nil; { // until the reset has arrived
		_, err = p.client.Write([]byte("x"))
	}
	wantReset(t, "server", p.server)
}

// TestLingeringIsBounded: sessions that have ended take no more than a quarter of the slots, and descriptors, from others.
func TestLingeringIsBounded(t *testing.T) {
	if !alone(t) {
		return
	}
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 16, Linger: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 12 {
		p := joined(t, l, "tcp", "127.0.0.1:0")
		p.talk(t)
		p.client.Close()
		if _, err := io.Copy(io.Discard, p.server); err != nil {
			t.Fatal(err)
		}
		p.server.Close()
		p.Wait()
		if p.Refused() != lane.None {
			t.Fatal(p.Refused())
		}
	}
	until(t, "a quarter lingers", func() bool { return len(l.Sessions()) <= 4 })
}

func sockaddr(a netip.AddrPort) *syscall.SockaddrInet4 {
	return &syscall.SockaddrInet4{Addr: a.Addr().As4()}
}
