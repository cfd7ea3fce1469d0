package lane_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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

// comesBack brings a session back, and checks that it is in user space.
func (p pair) comesBack(t testing.TB, patience time.Duration) {
	t.Helper()
	must.Do(t, p.ComeBack(patience))
	if p.Left() {
		t.Fatal("it has not come back")
	}
}

// TestComesBack: a session comes back to user space, stays there, leaves again, and ends. Every byte is
// counted.
func TestComesBack(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			p := joined(t, l, "tcp", address)
			for range 3 {
				p.talk(t)
				p.comesBack(t, time.Second)
				for range 20 {
					p.both(t)
				}
				if p.Left() {
					t.Error("it has left again")
				}
				p.MayLeave()
			}
			p.talk(t)
			p.comesBack(t, 0)
			big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
			go func() { _, _ = p.client.Write(big) }()
			sockets.Expect(t, p.server, big)
			p.finish(t, len(big))
			must.Is(t, p.ComeBack(0), net.ErrClosed)
		})
	}
	if st := l.Stats(); st.Joined != 2 || st.Left != 8 || st.Returned != 8 || st.Reset != 0 || st.Failed != 0 || len(st.Unrestored) != 0 {
		t.Errorf("%+v", st)
	}
}

// returning moves pairs to user space and back while they transfer.
func returning(t *testing.T, l *lane.Lane, pairs []pair, total int) {
	t.Helper()
	var all sync.WaitGroup
	for i, p := range pairs {
		all.Go(func() {
			stop := make(chan struct{})
			var back atomic.Int64
			var away sync.WaitGroup
			away.Go(func() { p.backAndForth(t, uint64(i), &back, stop) })
			p.transferUntil(t, total, uint64(i), func() bool { return back.Load() >= enough })
			close(stop)
			away.Wait()
		})
	}
	all.Wait()
	st := l.Stats()
	t.Logf("%+v", st)
	if st.Reset != 0 || st.Failed != 0 || len(st.Unrestored) != 0 {
		t.Errorf("%+v", st)
	}
}

// enough is how often a session must come back.
const enough = 3

// backAndForth makes a session come back and leave at random, and counts how often.
func (p pair) backAndForth(t *testing.T, seed uint64, back *atomic.Int64, stop chan struct{}) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	for {
		pause := time.NewTimer(time.Duration(rnd.IntN(20_000)) * time.Microsecond)
		select {
		case <-stop:
			pause.Stop()
			return
		case <-pause.C:
		}
		if !p.Left() {
			continue
		}
		if err := p.ComeBack(time.Duration(rnd.IntN(3)) * 10 * time.Millisecond); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("session %d: %v", seed, err)
		}
		back.Add(1)
		if rnd.IntN(2) == 0 { // otherwise it stays for a while
			p.MayLeave()
			continue
		}
		time.AfterFunc(time.Duration(rnd.IntN(20_000))*time.Microsecond, p.MayLeave)
	}
}

// TestComesBackStreams: bytes of both directions arrive once, in order and to the end, while sessions come back
// and leave in the middle of them, without a gap. This also holds between hosts, and where packets are lost,
// doubled and late.
func TestComesBackStreams(t *testing.T) {
	if !alone(t) {
		return
	}
	t.Run("good", func(t *testing.T) {
		l := open(t, "lo")
		pairs := make([]pair, 8)
		for i := range pairs {
			pairs[i] = joined(t, l, "tcp", []string{"127.0.0.1:0", "[::1]:0"}[i%2])
		}
		returning(t, l, pairs, 200_000)
	})
	t.Run("bad", func(t *testing.T) {
		l := open(t, "lo")
		pairs := make([]pair, 8)
		for i := range pairs {
			pairs[i] = joined(t, l, "tcp", "127.0.0.1:0")
		}
		badLink(t, "lo")
		returning(t, l, pairs, 100_000)
	})
	t.Run("forwarded", func(t *testing.T) {
		here, client, server := netns.Here(t), netns.New(t), netns.New(t)
		front, back := here.Join(client), here.Join(server)
		l := open(t, front.Device, back.Device)
		pairs := make([]pair, 8)
		for i := range pairs {
			pairs[i] = across(t, l, client, server, front.Near, back.Far)
		}
		badLink(t, front.Device)
		badLink(t, back.Device)
		returning(t, l, pairs, 100_000)
	})
}

// TestComesBackHalfClosed: a session comes back after its client has sent an end of file, and the other
// direction goes on until its own end of file.
func TestComesBackHalfClosed(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for name, ends := range map[string]func(p pair) (done, open *net.TCPConn){
		"client": func(p pair) (done, open *net.TCPConn) { return p.client, p.server },
		"server": func(p pair) (done, open *net.TCPConn) { return p.server, p.client },
	} {
		t.Run(name, func(t *testing.T) {
			p := joined(t, l, "tcp", "127.0.0.1:0")
			p.talk(t)
			done, open := ends(p)
			done.CloseWrite()
			sockets.ExpectAll(t, open, "")
			p.comesBack(t, time.Second)
			p.exchange(t, bytes.Repeat([]byte("after the return"), 1000), open, done)
			proxy := otherEnds(done)
			open.CloseWrite()
			sockets.ExpectAll(t, done, "")
			p.Wait()
			if got := p.Bytes(); got != *p.sent {
				t.Errorf("counted %v, want %v", got, *p.sent)
			}
			condition.Await(t, "no socket of the proxy waits for an end of file that has come", func() bool { return !waitsForEnd(t, proxy) })
		})
	}
	if st := l.Stats(); st.Returned != 2 || st.Ended != 2 || st.Reset != 0 {
		t.Errorf("%+v", st)
	}
}

// TestComesBackClosed: a sender with a closed window goes on when the session has come back, although the other
// endpoint does not read yet. The sender's window probes cannot cause that, because the test makes them come
// too late.
func TestComesBackClosed(t *testing.T) {
	if !alone(t) {
		return
	}
	const least = "/proc/sys/net/ipv4/tcp_rto_min_us"
	if err := os.WriteFile(least, []byte("100000000"), 0o644); err != nil {
		t.Skip("Linux 6.11 can make timers late:", err)
	}
	l := open(t, "lo")
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	go func() {
		for b := make([]byte, 1<<12); ; {
			if _, err := p.client.Write(b); err != nil {
				return
			}
		}
	}()
	condition.Await(t, "the window is closed", func() bool {
		v, _ := p.Look() // a window that is too small for a segment counts too
		return v.Ends[0].Packets > 10 && v.Ends[0].Outstanding == 0 && v.Ends[1].Window < 50_000
	})
	before := p.Bytes()[0]
	p.comesBack(t, 0)
	condition.Await(t, "the client's bytes are in user space", func() bool { return p.Bytes()[0] > before+10_000 })
	p.Reset()
	p.Wait()
}

// TestResetAfterReturn: a session returns without a gap, so an endpoint has bytes that it has not acknowledged.
// Whoever resets the session then, both endpoints learn of it at once.
func TestResetAfterReturn(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for name, reset := range map[string]func(pair){
		"by the session":  func(p pair) { p.Reset() },
		"by the endpoint": func(p pair) { _ = p.server.SetLinger(0); p.server.Close() },
		"by the client":   func(p pair) { _ = p.client.SetLinger(0); p.client.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 {
				p := joined(t, l, "tcp", "127.0.0.1:0")
				p.talk(t)
				p.both(t)
				p.comesBack(t, 0)
				reset(p)
				for _, c := range []*net.TCPConn{p.client, p.server} { // soon: after 10 s the place is given back, which also resets
					_ = c.SetReadDeadline(time.Now().Add(8 * time.Second))
				}
				if name != "by the client" {
					wantReset(t, "the client", p.client)
				}
				if name != "by the endpoint" {
					wantReset(t, "the endpoint", p.server)
				}
				p.Wait()
			}
		})
	}
}

// otherEnds returns the local and the remote port of the other end of a connection, in the format of
// /proc/net/tcp.
func otherEnds(c *net.TCPConn) [2]string {
	port := func(a net.Addr) string { return fmt.Sprintf(":%04X", a.(*net.TCPAddr).Port) }
	return [2]string{port(c.RemoteAddr()), port(c.LocalAddr())}
}

// waitsForEnd reports whether the kernel has a socket between those ports in FIN_WAIT1 or FIN_WAIT2 (include/net/tcp_states.h).
func waitsForEnd(t *testing.T, ports [2]string) bool {
	b := must.Get(os.ReadFile("/proc/thread-self/net/tcp"))(t)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if strings.HasSuffix(f[1], ports[0]) && strings.HasSuffix(f[2], ports[1]) && (f[3] == "04" || f[3] == "05") {
			return true
		}
	}
	return false
}

// TestLook: an endpoint that does not read has windows of 0, repeated segments are counted where packets are
// lost, and the round trip to an endpoint is measured.
func TestLook(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	for range 10 {
		p.both(t)
	}
	v, ok := p.Look()
	for i, e := range v.Ends {
		if !ok || !v.InLane || e.Packets < 10 || e.Window == 0 || e.RoundTrip <= 0 || e.LeastRoundTrip > e.RoundTrip || e.LeastRoundTrip <= 0 {
			t.Errorf("endpoint %d: %+v", i, e)
		}
		if e.Repeated != 0 || e.ZeroWindows != 0 {
			t.Errorf("endpoint %d, of a good link: %+v", i, e)
		}
	}
	p.exchange(t, []byte("a question"), p.client, p.server)
	condition.Await(t, "the answer is waited for", func() bool {
		v, _ = p.Look()
		return v.Ends[1].Waits.Answer > 20*time.Millisecond && v.Time > v.Ends[1].Waits.Answer
	})
	p.exchange(t, []byte("an answer"), p.server, p.client)
	if v, _ = p.Look(); v.Ends[1].Waits.Answer < 20*time.Millisecond || v.Ends[1].Waits.Answers == 0 || v.Ends[0].Segments < 11 || v.Ends[0].Payload < 60 {
		t.Errorf("after an answer: %+v", v.Ends)
	}
	lossyLink(t, "lo", lossy.Rate{Twice: 5000})
	go func() {
		for b := make([]byte, 1<<16); ; {
			if _, err := p.client.Write(b); err != nil {
				return
			}
		}
	}()
	condition.Await(t, "the server's window is 0", func() bool {
		v, _ = p.Look()
		return v.Ends[1].ZeroWindows > 0 && v.Ends[0].Repeated > 0 && v.Ends[0].Lost > 0 && v.Ends[1].Waits.Window > 0
	})
	if v.Ends[0].ZeroWindows != 0 {
		t.Errorf("the client: %+v", v.Ends[0])
	}
	before := v.Ends[0].Packets
	p.comesBack(t, 0)
	if v, ok = p.Look(); !ok || v.InLane || v.Ends[0].Packets < before || v.Ends[0].Outstanding != 0 {
		t.Errorf("in user space: %+v, %v", v, ok)
	}
	p.Reset()
	p.Wait()
	if v, ok = p.Look(); ok {
		t.Errorf("one that has ended: %+v", v)
	}
}

// TestUnrestorable: if another socket has the address of a session, the session cannot come back. It is reset,
// with this reason.
func TestUnrestorable(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	condition.Await(t, "the sockets are closed", func() bool { return l.Stats().Left == 1 })
	a, _, ok := p.Addresses()
	if !ok {
		t.Fatal("no addresses")
	}
	other := must.Get(sys.Established(a[1], a[0], 1, 1))(t)
	defer syscall.Close(other)
	if err := p.ComeBack(time.Second); !errors.Is(err, syscall.EADDRNOTAVAIL) || !errors.Is(err, lane.AddressTaken) {
		t.Errorf("it comes back: %v", err)
	}
	wantReset(t, "server", p.server)
	p.Wait()
	if st := l.Stats(); st.Unrestored[lane.AddressTaken] != 1 || st.Reset != 1 || st.Returned != 0 {
		t.Errorf("%+v", st)
	}
}
