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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/lossy"
)

// talk sends messages in both directions until the session has left user space.
func (p pair) talk(t testing.TB) {
	t.Helper()
	n := 0
	condition.Await(t, "the session leaves user space", func() bool {
		n++
		p.both(t)
		return p.Left()
	})
}

func (p pair) exchange(t testing.TB, message []byte, from, to *net.TCPConn) {
	t.Helper()
	if _, err := from.Write(message); err != nil {
		t.Fatalf("%v; left %v, refused %v", err, p.Left(), p.Refused())
	}
	p.sent[btoi(from == p.server)] += uint64(len(message))
	got := make([]byte, len(message))
	if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, message) {
		t.Fatalf("%q, %v; left %v, refused %v", got, err, p.Left(), p.Refused())
	}
}

// both exchanges a message each way.
func (p pair) both(t testing.TB) {
	t.Helper()
	p.exchange(t, []byte("there"), p.client, p.server)
	p.exchange(t, []byte("and back"), p.server, p.client)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// finish ends a session by both half-closes, and compares the counted bytes. The client has sent more bytes
// than p.sent says; more is the difference.
func (p pair) finish(t *testing.T, more int) {
	t.Helper()
	p.client.CloseWrite()
	sockets.ExpectAll(t, p.server, "")
	p.exchange(t, []byte("after the half-close"), p.server, p.client)
	p.server.Close()
	sockets.ExpectAll(t, p.client, "")
	p.Wait()
	if got, want := p.Bytes(), *p.sent; got != [2]uint64{want[0] + uint64(more), want[1]} {
		t.Errorf("counted %v, want %v and %d", got, want, more)
	}
}

// A stream is a sequence of bytes that depend on their position and on a seed.
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

// send writes at least total bytes in pieces of random size with random pauses, and more until mayEnd returns
// true.
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

// receive reads to the end, and compares the bytes.
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

// transfer sends at least total bytes in both directions at once, and then ends the session. If leaves is true
// it goes on until the session has left user space.
func (p pair) transfer(t testing.TB, total int, seed uint64, leaves bool) {
	p.transferUntil(t, total, seed, func() bool { return !leaves || p.Left() })
}

// transferUntil is transfer until mayEnd returns true.
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

// many runs n sessions at once. connect makes them.
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

// lossyLink makes a device lose, double and delay packets until the test ends.
func lossyLink(t *testing.T, device string, rate lossy.Rate) {
	t.Helper()
	d := must.Get(net.InterfaceByName(device))(t)
	link := must.Get(lossy.Attach(d.Index, rate))(t)
	t.Cleanup(func() {
		c, err := link.Counts()
		t.Logf("%s: %+v, %v", device, c, err)
		if rate.Lose > 0 && c.Lost == 0 || rate.Twice > 0 && c.Doubled == 0 || rate.Late > 0 && c.Delayed == 0 {
			t.Errorf("the link is not bad: %+v", c)
		}
		link.Close()
	})
}

// TestStreams: bytes of both directions arrive once, in order and to the end, while sessions leave user space
// in the middle of them. This also holds where packets are lost, doubled and late.
func TestStreams(t *testing.T) {
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

// across connects a client on one host to the proxy here, and the proxy to a server on another host.
func across(t *testing.T, l *lane.Lane, client, server *netns.Host, near, far netip.Addr) pair {
	t.Helper()
	var listening net.Listener
	var c net.Conn
	var err error
	at := listener(t, netip.AddrPortFrom(near, 0).String())
	client.Run(func() { c, err = net.Dial("tcp", at.Addr().String()) })
	must.Do(t, err)
	a := must.Get(at.Accept())(t)
	server.Run(func() { listening, err = net.Listen("tcp", netip.AddrPortFrom(far, 0).String()) })
	must.Do(t, err)
	defer listening.Close()
	b, s := connected(t, listening)
	return join(t, l, c.(*net.TCPConn), a.(*net.TCPConn), b, s)
}

// TestPathShrinks: a router behind the proxy takes smaller packets than before. Its errors reach the endpoints that send,
// and they go on with smaller packets.
//
//	client          here (the proxy)        router                  server
//	v0 ──── veth(4) ──── v0   v1 ──── veth(4) ──── v1   v2 ──── veth(4) ──── v2
func TestPathShrinks(t *testing.T) {
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
	sockets.Expect(t, p.server, big)
	if !p.Left() {
		t.Error("the session has come back")
	}
}

// An exchange is the bytes that both sides send in a session that has left user space, and how the sides end,
// as in bench/contestant.
type exchange struct {
	up, down               int
	first                  first
	slowClient, slowServer bool
}

// first is the side that ends first. The other side sends after that.
type first int

const (
	together first = iota
	clientFirst
	serverFirst
)

// TestChecks makes the 19 checks of TestCorrectness (bench/contestant) on sessions that have left user space.
// Every proxy is judged by these checks.
func TestChecks(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for _, n := range []int{0, 1, 4095, 4097, 65535, 65537, 1<<20 + 1, 8<<20 - 1} {
		t.Run(fmt.Sprintf("%d bytes each way", n), exchange{up: n, down: n}.check(l))
	}
	for name, x := range map[string]exchange{
		"the client ends first":                   {up: 100_003, down: 3<<20 + 7, first: clientFirst},
		"the server ends first":                   {up: 3<<20 + 7, down: 100_003, first: serverFirst},
		"the client ends first and sends nothing": {down: 65_537, first: clientFirst},
		"the server ends first and sends nothing": {up: 65_537, first: serverFirst},
		"a slow client":                           {up: 1000, down: 6<<20 + 1, slowClient: true},
		"a slow server":                           {up: 6<<20 + 1, down: 1000, slowServer: true},
	} {
		t.Run(name, x.check(l))
	}
	t.Run("the server answers and closes", func(t *testing.T) {
		p := gone(t, l)
		p.exchange(t, make([]byte, 3000), p.client, p.server)
		p.exchange(t, make([]byte, 3000), p.server, p.client)
		p.server.Close()
		if n, err := p.client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the answer: %d, %v", n, err)
		}
		p.client.Close()
		p.Wait()
	})
	for name, reset := range map[string]func(p pair) (by, other *net.TCPConn){
		"a reset by the client": func(p pair) (by, other *net.TCPConn) { return p.client, p.server },
		"a reset by the server": func(p pair) (by, other *net.TCPConn) { return p.server, p.client },
	} {
		t.Run(name, func(t *testing.T) {
			p := gone(t, l)
			by, other := reset(p)
			must.Do(t, errors.Join(by.SetLinger(0), by.Close()))
			wantReset(t, "the other end", other)
			p.Wait()
		})
	}
	t.Run("a client that vanishes from a download", func(t *testing.T) { vanishes(t, gone(t, l)) })
	t.Run("200 connections at once", func(t *testing.T) { atOnce(t, l, 200) })
	if st := l.Stats(); st.Left != 14+1+2+1+200 || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
}

// gone returns a session that has left user space.
func gone(t testing.TB, l *lane.Lane) pair {
	t.Helper()
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	return p
}

// vanishes makes the client reset the session while it downloads more than buffers hold. The reset comes after
// many unread bytes.
func vanishes(t *testing.T, p pair) {
	failed := make(chan error, 1)
	go func() {
		for b := make([]byte, 1<<16); ; {
			if _, err := p.server.Write(b); err != nil {
				failed <- err
				return
			}
		}
	}()
	if _, err := io.ReadFull(p.client, make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(p.client.SetLinger(0), p.client.Close()); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the server: %v, want a reset", err)
	}
	p.Wait()
}

// atOnce makes n exchanges at once, each with its own contents and length.
func atOnce(t *testing.T, l *lane.Lane, n int) {
	pairs := make([]pair, n)
	for i := range pairs {
		pairs[i] = gone(t, l)
	}
	var all sync.WaitGroup
	for i, p := range pairs {
		limited(t, p.client, p.server)
		all.Go(func() { exchange{up: 40_000 + i, down: 60_000 - i}.run(t, p, byte(i)) })
	}
	all.Wait()
}

func (x exchange) check(l *lane.Lane) func(*testing.T) {
	return func(t *testing.T) { x.run(t, gone(t, l), 1) }
}

// run sends the bytes, and compares what arrives and what is counted.
func (x exchange) run(t *testing.T, p pair, seed byte) {
	report := func(side string, err error) {
		if err != nil {
			t.Errorf("%s: %v", side, err)
		}
	}
	up := func() { report("client", upload(p.client, x.up, seed)) }
	down := func() { report("client", download(p.client, x.down, seed+1, x.slowClient)) }
	serverUp := func() { report("server", upload(p.server, x.down, seed+1)) }
	serverDown := func() { report("server", download(p.server, x.up, seed, x.slowServer)) }
	client, server := [2]func(){up, down}, [2]func(){serverUp, serverDown}
	switch x.first {
	case clientFirst:
		server = [2]func(){serverDown, serverUp}
	case serverFirst:
		client = [2]func(){down, up}
	}
	var ends sync.WaitGroup
	for _, side := range [2][2]func(){client, server} {
		if x.first == together {
			ends.Go(side[0])
			ends.Go(side[1])
			continue
		}
		ends.Go(func() { side[0](); side[1]() })
	}
	ends.Wait()
	p.Wait()
	if got, want := p.Bytes(), [2]uint64{p.sent[0] + uint64(x.up), p.sent[1] + uint64(x.down)}; got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// upload sends n bytes and the end of file.
func upload(c *net.TCPConn, n int, seed byte) error {
	b := make([]byte, n)
	(&stream{seed: seed}).fill(b)
	if _, err := c.Write(b); err != nil {
		return err
	}
	return c.CloseWrite()
}

// download expects these n bytes and the end of file. A slow one has a small buffer, and pauses after each
// piece.
func download(c *net.TCPConn, n int, seed byte, slow bool) error {
	want, got, size := make([]byte, n), make([]byte, 0, n), 1<<20
	(&stream{seed: seed}).fill(want)
	if slow {
		size = 32 << 10
		if err := c.SetReadBuffer(128 << 10); err != nil {
			return err
		}
	}
	for b := make([]byte, size); ; {
		m, err := c.Read(b)
		got = append(got, b[:m]...)
		switch {
		case err == io.EOF && bytes.Equal(got, want):
			return nil
		case err != nil:
			return fmt.Errorf("%d of %d bytes, equal so far: %v: %w", len(got), n, bytes.HasPrefix(want, got), err)
		}
		if slow {
			time.Sleep(time.Millisecond) // to be slow, not to wait for something
		}
	}
}

// TestDeadlines: Join clears the deadlines of connections, even expired ones. No byte is lost, and the session
// goes on in user space and in the lane.
func TestDeadlines(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	early := []byte("sent before the session begins")
	must.Get(client.Write(early))(t)
	for _, c := range []*net.TCPConn{a, b} {
		must.Do(t, c.SetDeadline(time.Unix(1, 0)))
	}
	p := join(t, l, client, a, b, server)
	p.sent[0] += uint64(len(early))
	sockets.Expect(t, p.server, early)
	must.Do(t, p.ComeBack(0)) // from now on it stays in user space
	p.both(t)
	p.MayLeave()
	p.talk(t)
	p.comesBack(t, time.Second)
	p.exchange(t, []byte("here again"), p.client, p.server)
}

// TestBigTCP: a session comes back and stays in user space if an endpoint sends packets above 64 KiB. No socket
// of this host shows before that it will.
func TestBigTCP(t *testing.T) {
	if !alone(t) {
		return
	}
	here, client, server := netns.Here(t), netns.New(t), netns.New(t)
	front, back := here.Join(client), here.Join(server)
	near, _ := here.JoinIPv6(client, front)
	_, far := here.JoinIPv6(server, back)
	client.IP("link set %s gso_max_size 180000", front.Device)
	l := open(t, front.Device, back.Device)
	p := across(t, l, client, server, near, far)
	p.talk(t)
	big := make([]byte, 30_000_000)
	(&stream{seed: 9}).fill(big)
	go func() { _, _ = p.client.Write(big) }()
	sockets.Expect(t, p.server, big)
	condition.Await(t, "it has come back", func() bool { return !p.Left() })
	if why := p.Refused(); why != lane.BigTCP && why != lane.Kept {
		t.Errorf("it stays for %v", why)
	}
	if st := l.Stats(); st.Returned != 1 || st.Reset != 0 {
		t.Errorf("%+v", st)
	}
	p.exchange(t, []byte("and goes on"), p.server, p.client)
}

// sumsItself makes the kernel compute the checksums of TCP segments that leave at a device.
func sumsItself(t *testing.T, h *netns.Host, device string) {
	t.Helper()
	var err error
	h.Run(func() { err = sys.CompleteChecksums(device) })
	if err != nil {
		t.Fatalf("checksums of %s: %v", device, err)
	}
}

// TestForwardedChecksums: the checksums of packets that the lane sends on are right for an endpoint that
// verifies them. They may be complete when the packet arrives, or cover only the addresses, so that a device
// completes them.
func TestForwardedChecksums(t *testing.T) {
	if !alone(t) {
		return
	}
	here, client, server := netns.Here(t), netns.New(t), netns.New(t)
	front, back := here.Join(client), here.Join(server)
	near, _ := here.JoinIPv6(client, front)
	_, far := here.JoinIPv6(server, back)
	sumsItself(t, here, front.Device)
	sumsItself(t, here, back.Device)
	l := open(t, front.Device, back.Device)
	transfer := func(t *testing.T) {
		for i, to := range [][2]netip.Addr{{front.Near, back.Far}, {near, far}} {
			p := across(t, l, client, server, to[0], to[1])
			p.talk(t)
			p.transfer(t, 300_000, uint64(i), true)
		}
	}
	t.Run("of the addresses alone", transfer)
	sumsItself(t, client, front.Device)
	sumsItself(t, server, back.Device)
	t.Run("complete", transfer)
	if st := l.Stats(); st.Left != 4 || st.Reset != 0 {
		t.Errorf("%+v", st)
	}
}

// TestDeviceNotKnown: an attempt to leave is not counted if no packet of one side has come yet. It is counted
// if the packets of one side arrive at a device that the lane does not have.
func TestDeviceNotKnown(t *testing.T) {
	if !alone(t) {
		return
	}
	here, client, server := netns.Here(t), netns.New(t), netns.New(t)
	front, back := here.Join(client), here.Join(server)
	t.Run("yet", func(t *testing.T) {
		l := open(t, "lo")
		o := newOwner()
		p, a, b := owned(t, l, o)
		<-o.ready
		p.Arm()
		if p.pass(t, p.client, p.server, a, b) || p.Refused() != lane.Device {
			t.Fatalf("the first packet: refused %v", p.Refused())
		}
		condition.Await(t, "it leaves", func() bool {
			p.Arm()
			return p.pass(t, p.server, p.client, b, a)
		})
		must.Do(t, p.Session.Leave(a, b))
		if st := l.Stats(); st.Refused[lane.Device] != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("at all", func(t *testing.T) {
		l := open(t, front.Device)
		p := across(t, l, client, server, front.Near, back.Far)
		condition.Await(t, "it is counted", func() bool {
			p.both(t)
			return l.Stats().Refused[lane.Device] > 0
		})
		if st := l.Stats(); st.Left != 0 || p.Refused() != lane.Device {
			t.Errorf("%+v, refused: %v", st, p.Refused())
		}
	})
}

// BenchmarkProbe measures one keepalive of a silent session: a probe to each endpoint, and their answers, which
// the program carries.
func BenchmarkProbe(b *testing.B) {
	l := open(b, "lo")
	p := joined(b, l, "tcp", "127.0.0.1:0")
	p.talk(b)
	for b.Loop() {
		if err := lane.ProbeBoth(p.Session); err != nil {
			b.Fatal(err)
		}
	}
}
