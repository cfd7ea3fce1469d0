package lane_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
)

// TestBlindPackets: a packet that the socket of a session in user space refuses, for its number is out of the window, keeps the session there
// until MayLeave: one that has come back, and one that has never left.
func TestBlindPackets(t *testing.T) {
	t.Parallel()

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
				p.exchange(t, []byte("one exchange"), p.client, p.server)
				p.exchange(t, []byte("shows devices"), p.server, p.client)
				p.MayLeave()
				until(t, "the packet keeps it in user space, or is forgotten", func() bool {
					p.exchange(t, []byte("there"), p.client, p.server)
					p.exchange(t, []byte("and back"), p.server, p.client)
					return p.Left() || p.Refused() == c.want
				})
				p.MayLeave()
				p.talk(t)
				if err := p.ComeBack(0); err != nil {
					t.Fatal(err)
				}
				p.exchange(t, []byte("here"), p.client, p.server)
			})
		}
	}
}

// A blind third party knows the addresses of a session, and none of its numbers.
type blind struct {
	*forger
	random *rand.Rand
}

// send sends packets of each kind, with numbers that no window has.
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

// hears has a connection get its packets again.
func hears(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const detach = 27 // SO_DETACH_FILTER
	if e := raw.Control(func(fd uintptr) { err = sys.SetsockoptInt(int(fd), syscall.SOL_SOCKET, detach, 0) }); errors.Join(e, err) != nil {
		t.Fatal(e, err)
	}
}

// TestBlindMayLeave: a third party without numbers has no session leave that has come back, be it at rest, with bytes on the way, or with bytes that nobody reads; and a
// session that it has kept in user space, by whatever many packets, leaves after one MayLeave.
func TestBlindMayLeave(t *testing.T) {
	t.Parallel()

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
		until(t, "the packets keep it in user space, or are forgotten", func() bool {
			p.exchange(t, []byte("there"), p.client, p.server)
			p.exchange(t, []byte("and back"), p.server, p.client)
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
	if _, err := p.client.Write([]byte("on the way")); err != nil {
		t.Fatal(err)
	}
	until(t, "they are relayed", func() bool { return p.Bytes()[0] == p.sent[0]+uint64(len("on the way")) })
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
	until(t, "the flow stands still", func() bool {
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
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	leaves()
	p.finish(t, len(big))
}
