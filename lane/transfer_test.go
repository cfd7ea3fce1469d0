package lane_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/lossy"
)

// A stream is bytes that depend on their position and on a seed.
type stream struct {
	seed byte
	at   int
}

func (s *stream) fill(b []byte) {
	for i := range b {
		n := uint32(s.at+i)*2654435761 + uint32(s.seed)
		b[i] = byte(n >> 24)
	}
	s.at += len(b)
}

// send writes that many bytes at least in pieces of all sizes with pauses at random, and more until
// the session may end.
func (s *stream) send(c *net.TCPConn, total int, mayEnd func() bool, rnd *rand.Rand) error {
	b := make([]byte, 40000)
	for s.at < total || !mayEnd() {
		n := 1 + rnd.IntN(200)
		if s.at >= total {
			time.Sleep(time.Duration(rnd.IntN(4)) * time.Millisecond)
		} else if rnd.IntN(8) == 0 {
			n = 1 + rnd.IntN(len(b))
		}
		s.fill(b[:n])
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
		if rnd.IntN(4) == 0 { // a gap, at which a session may leave
			time.Sleep(time.Duration(rnd.IntN(2000)) * time.Microsecond)
		}
	}
	return c.CloseWrite()
}

// receive reads to the end, and compares.
func (s *stream) receive(c *net.TCPConn) error {
	b, want := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		n, err := c.Read(b)
		s.fill(want[:n])
		if !bytes.Equal(b[:n], want[:n]) {
			return fmt.Errorf("wrong bytes before %d", s.at)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", s.at, err)
		}
	}
}

// transfer sends so many bytes at least both ways at once, until the session has left user space if
// it is to leave, and to the end.
func (p pair) transfer(t testing.TB, total int, seed uint64, leaves bool) {
	p.transferUntil(t, total, seed, func() bool { return !leaves || p.Left() })
}

// transferUntil is transfer until the session may end.
func (p pair) transferUntil(t testing.TB, total int, seed uint64, mayEnd func() bool) {
	var both sync.WaitGroup
	var sent, got [2]int
	for i, ends := range [][2]*net.TCPConn{{p.client, p.server}, {p.server, p.client}} {
		both.Go(func() {
			s := stream{seed: byte(2*seed) + byte(i)}
			if err := s.send(ends[0], total, mayEnd, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
				t.Errorf("session %d: sending: %v", seed, err)
			}
			sent[i] = s.at
		})
		both.Go(func() {
			s := stream{seed: byte(2*seed) + byte(i)}
			if err := s.receive(ends[1]); err != nil {
				t.Errorf("session %d, left %v, refused %v: %v", seed, p.Left(), p.Refused(), err)
			}
			got[i] = s.at
		})
	}
	both.Wait()
	p.Wait()
	if sent != got {
		t.Errorf("session %d: sent %v bytes, got %v", seed, sent, got)
	}
	want := [2]uint64{p.sent[0] + uint64(sent[0]), p.sent[1] + uint64(sent[1])}
	if n := p.Bytes(); n != want {
		t.Errorf("session %d: counted %v, want %v", seed, n, want)
	}
}

// many runs that many sessions at once, which make returns.
func many(t *testing.T, l *lane.Lane, n, total int, connect func() pair) {
	t.Helper()
	pairs := make([]pair, n)
	for i := range pairs {
		pairs[i] = connect()
	}
	var all sync.WaitGroup
	for i, p := range pairs {
		all.Go(func() { p.transfer(t, total, uint64(i), true) })
	}
	all.Wait()
	st := l.Stats()
	t.Logf("%+v", st)
	if st.Left != uint64(n) {
		t.Errorf("%d of %d sessions have left user space", st.Left, n)
	}
	if st.Failed != 0 || st.Reset != 0 {
		t.Errorf("%+v", st)
	}
}

var bad = lossy.Rate{Lose: 200, Twice: 200, Late: 300}

func badLink(t *testing.T, device string) { lossyLink(t, device, bad) }

// lossyLink has a device lose, double and delay packets until the test ends.
func lossyLink(t *testing.T, device string, rate lossy.Rate) {
	t.Helper()
	d, err := net.InterfaceByName(device)
	if err != nil {
		t.Fatal(err)
	}
	link, err := lossy.Attach(d.Index, rate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c, err := link.Counts()
		t.Logf("%s: %+v, %v", device, c, err)
		if rate.Lose > 0 && c.Lost == 0 || rate.Twice > 0 && c.Doubled == 0 || rate.Late > 0 && c.Delayed == 0 {
			t.Errorf("the link is not bad: %+v", c)
		}
		link.Close()
	})
}

// TestStreams: bytes of both directions arrive once, in order and to the end, while sessions leave
// user space in the middle of them; also where packets are lost, doubled and late.
func TestStreams(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run("good "+address, func(t *testing.T) {
			l := open(t, "lo")
			many(t, l, 24, 400_000, func() pair { return joined(t, l, "tcp", address) })
		})
	}
	t.Run("bad", func(t *testing.T) {
		l := open(t, "lo")
		pairs := func() pair { return joined(t, l, "tcp", "127.0.0.1:0") }
		badLink(t, "lo")
		many(t, l, 24, 150_000, pairs)
	})
}

// TestForwarded: the endpoints are on other hosts, and packets are sent on to them.
//
//	client          here (the proxy)        server
//	v0 ──── veth(4) ──── v0   v1 ──── veth(4) ──── v1
func TestForwarded(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	here, client, server := netns.Here(t), netns.New(t), netns.New(t)
	front, back := here.Join(client), here.Join(server)
	l := open(t, front.Device, back.Device)
	connect := func() pair { return across(t, l, client, server, front.Near, back.Far) }
	t.Run("ends", func(t *testing.T) {
		p := connect()
		p.talk(t)
		p.client.SetLinger(0)
		p.client.Close()
		wantReset(t, "server", p.server)
		p.Wait()
		q := connect()
		q.talk(t)
		q.Reset()
		wantReset(t, "client", q.client)
		wantReset(t, "server", q.server)
		q.Wait()
	})
	before := l.Stats()
	t.Run("good", func(t *testing.T) {
		for i := range 8 {
			connect().transfer(t, 300_000, uint64(i), true)
		}
	})
	t.Run("IPv6", func(t *testing.T) {
		near, _ := here.JoinIPv6(client, front)
		_, far := here.JoinIPv6(server, back)
		for i := range 4 {
			p := across(t, l, client, server, near, far)
			p.talk(t)
			p.transfer(t, 200_000, uint64(i), true)
		}
	})
	t.Run("bad", func(t *testing.T) {
		badLink(t, front.Device)
		badLink(t, back.Device)
		var all sync.WaitGroup
		for i := range 8 {
			p := connect()
			all.Go(func() { p.transfer(t, 300_000, uint64(i), true) })
		}
		all.Wait()
	})
	if st := l.Stats(); st.Left-before.Left != 8+4+8 || st.Reset != before.Reset {
		t.Errorf("%+v", st)
	}
}

// across connects a client on one host to the proxy here, and that to a server on another one.
func across(t *testing.T, l *lane.Lane, client, server *netns.Host, near, far netip.Addr) pair {
	t.Helper()
	var listening net.Listener
	var c net.Conn
	var err error
	at := listener(t, netip.AddrPortFrom(near, 0).String())
	client.Run(func() { c, err = net.Dial("tcp", at.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	a, err := at.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server.Run(func() { listening, err = net.Listen("tcp", netip.AddrPortFrom(far, 0).String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close()
	b, s := connected(t, listening)
	return join(t, l, c.(*net.TCPConn), a.(*net.TCPConn), b, s)
}

// TestPathShrinks: a router behind the proxy takes smaller packets than before: its errors reach
// the endpoints that send, which go on with smaller ones.
//
//	client          here (the proxy)        router                  server
//	v0 ──── veth(4) ──── v0   v1 ──── veth(4) ──── v1   v2 ──── veth(4) ──── v2
func TestPathShrinks(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	here, client, router, server := netns.Here(t), netns.New(t), netns.New(t), netns.New(t)
	front, back, behind := here.Join(client), here.Join(router), router.Join(server)
	here.Route(behind.Far, back.Far)
	server.Route(back.Near, behind.Near)
	router.Run(func() {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
			t.Error(err)
		}
	})
	l := open(t, front.Device, back.Device)
	p := across(t, l, client, server, front.Near, behind.Far)
	p.talk(t)
	router.IP("link set %s mtu 1300", behind.Device)
	big := make([]byte, 300_000)
	(&stream{seed: 9}).fill(big)
	go func() { _, _ = p.client.Write(big) }()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(p.server, got); err != nil || !bytes.Equal(got, big) {
		t.Fatalf("through the smaller path: %v", err)
	}
	if !p.Left() {
		t.Error("the session has come back")
	}
}
