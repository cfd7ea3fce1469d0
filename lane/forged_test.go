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
	t.Parallel()

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
			wantReset(t, "server", p.server) // which sends nothing
			wantReset(t, "client", p.client)
		})
	}
}

// TestForgedEndOfFile: a client whose end of file its endpoint refuses sends nothing more, and stays in the account.
func TestForgedEndOfFile(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	p := joined(t, open(t, "lo"), "tcp", "127.0.0.1:0")
	p.talk(t)
	f := newForger(t, p)
	f.send(0, 0x11, "", true)
	f.send(0, 0x18, "z", false)
	f.send(1, 0x18, "zz", false)
	if err := p.server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, p.client); err != nil { // all packets have passed
		t.Fatal(err)
	}
	if !p.Left() || p.Bytes() != *p.sent {
		t.Errorf("left %v, %v bytes, want %v", p.Left(), p.Bytes(), *p.sent)
	}
	p.Reset()
	wantReset(t, "server", p.server) // and no byte before
}

// TestForgedStrays: a third party that knows the addresses of a session and no number ends it by nothing that no endpoint would take: segments
// without ACK, also of numbers that fit, and an end of file of before.
func TestForgedStrays(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for name, forge := range map[string]func(f *forger){
		"FIN without ACK":            func(f *forger) { f.send(0, 1, "", false) },
		"FIN without ACK, ahead":     func(f *forger) { f.send(500, 1, "", false) },
		"FIN without ACK, of before": func(f *forger) { f.send(1<<32-3, 1, "", false) },
		"FIN of before":              func(f *forger) { f.send(1<<32-3, 0x11, "", false) },
		"data without ACK, ahead":    func(f *forger) { f.send(9000, 8, "z", false) },
		"data without ACK":           func(f *forger) { f.send(0, 8, "z", false) },
	} {
		t.Run(name, func(t *testing.T) {
			p := joined(t, l, "tcp", "127.0.0.1:0")
			p.talk(t)
			forge(newForger(t, p))
			limited(t, p.client, p.server)
			p.exchange(t, []byte("it goes on"), p.client, p.server)
			p.exchange(t, []byte("both ways"), p.server, p.client)
			if v, ok := p.Look(); !ok || !p.Left() || v.EndedBy != -1 || v.Ends[0].Repeated+v.Ends[0].BehindGap != 0 {
				t.Errorf("left %v, %+v", p.Left(), v)
			}
			p.finish(t, 0)
		})
	}
}

// TestForgedStall: a client that keeps bytes back and repeats those behind them has no user timeout blame its endpoint, while one whose endpoint is silent has.
func TestForgedStall(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 16, UserTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
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
		case err := <-ended: // its stall began after that of the other
			pace.Stop()
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the sender: %v, want a reset", err)
			}
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
	raw, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(raw) })
	send, receive := numbers(t, p.client)
	return &forger{t, raw, frame.Packet{
		From: p.client.LocalAddr().(*net.TCPAddr).AddrPort(), To: p.client.RemoteAddr().(*net.TCPAddr).AddrPort(), Ack: receive, Window: 1000,
	}, send}
}

// send sends a packet of a number ahead of the client's next one. A damaged one has a wrong checksum, so that the endpoint
// refuses it.
func (f *forger) send(ahead uint32, flags byte, payload string, damaged bool) {
	f.t.Helper()
	f.packet.Seq, f.packet.Flags, f.packet.Payload = f.next+ahead, flags, []byte(payload)
	b := f.packet.Bytes()
	if damaged {
		b[36] ^= 0x55
	}
	if err := syscall.Sendto(f.raw, b, 0, sockaddr(f.packet.To)); err != nil {
		f.t.Fatal(err)
	}
}

// TestLingeringIsBounded: sessions that have ended take no more than a quarter of the slots, and descriptors, from others.
func TestLingeringIsBounded(t *testing.T) {
	t.Parallel()

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
