package relay_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/relay"
)

// resetting are survivors by what they do; one that only writes has nothing but its error.
var resetting = map[string]sockets.Survivor{
	"reads": {Reads: true}, "reads and writes": {Reads: true, Writes: true}, "writes": {Writes: true},
}

// strain has one peer write, and read, and reset its connection at a random point of what it
// has moved, while the other one lives.
func strain(resets, survives halfConn, of sockets.Survivor, piece int) *sockets.Survivor {
	for _, c := range []net.Conn{resets, survives} {
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
	}
	b, most := make([]byte, piece), rand.Int64N(512<<10)
	var peers sync.WaitGroup
	peers.Go(func() { of.Live(survives, b) })
	if of.Reads {
		peers.Go(func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{resets}) })
		for n := int64(0); n < most; n += int64(piece) {
			if _, err := resets.Write(b); err != nil {
				break
			}
		}
	} else { // nothing that is sent to it is taken
		_, _ = io.CopyN(io.Discard, struct{ io.Reader }{resets}, most)
	}
	_ = resets.(*net.TCPConn).SetLinger(0)
	_ = resets.Close()
	peers.Wait()
	return &of
}

// TestResetIsNoEnd: whoever is reset, at whatever moment, the other one's connection is reset,
// and has seen no end of file before, be it spliced or copied, in small pieces or large.
func TestResetIsNoEnd(t *testing.T) {
	t.Parallel()

	times := full.Times(10, 40)
	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) {
				r := newRelay(t, &relay.Config{Engine: e})
				r.SetLinger(10 * time.Millisecond) // survivors that only write take nothing
				for name, of := range resetting {
					for _, piece := range []int{64, 64 << 10} {
						for i := range times {
							g := d.newRig(t, r, tcp, tcp)
							resets, survives := g.A, g.B
							if i%2 == 1 {
								resets, survives = g.B, g.A
							}
							if s := strain(resets, survives, of, piece); !s.WasReset() {
								t.Errorf("one that %s, pieces of %d bytes: no reset: %v", name, piece, s)
							}
							if res, err := g.wait(); res.Reason != relay.ReasonReset || err == nil {
								t.Errorf("ended by %v, %v, want a reset", res.Reason, err)
							}
							_ = survives.Close()
						}
					}
				}
			})
		})
	}
}

// TestMultipathReset: the reset of a Multipath TCP client that has sent everything is passed on at once, and nothing is
// lost.
func TestMultipathReset(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r := newRelay(t, nil)
		r.SetLinger(time.Hour)
		for _, n := range []int{0, 1, 50_000} {
			g := d.newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
				far, near := sockets.MultipathPair(t)
				return far, near
			}, tcp)
			write(t, g.A, make([]byte, n))
			readFull(t, g.B, make([]byte, n))
			abort(t, g.A)
			if res, err := g.wait(); res.Reason != relay.ReasonReset || res.Culprit != relay.SideA || err == nil || res.AToB.Lost != 0 {
				t.Errorf("%d bytes: ended by %v of %v, %v, with %d bytes lost", n, res.Reason, res.Culprit, err, res.AToB.Lost)
			}
		}
	})
}

// TestLegsAtEnd: the result has the accounts of both TCP connections, whatever ends the session, and whatever hides them.
func TestLegsAtEnd(t *testing.T) {
	t.Parallel()

	wrap := func(of func(c net.Conn) net.Conn) network {
		return func(t testing.TB) (halfConn, net.Conn) {
			far, near := tcp(t)
			return far, of(near)
		}
	}
	for name, a := range map[string]network{
		"tcp": tcp, "tls": tlsOverTCP, "wrapped": wrap(relay.Wrap), "transparent": transparentTCP,
		"metered":             wrap(func(c net.Conn) net.Conn { return relay.Metered(c, new(relay.Meter)) }),
		"deaf":                wrap(func(c net.Conn) net.Conn { return deaf{c} }),
		"without a deadline":  wrap(func(c net.Conn) net.Conn { return undated{deaf{c}} }),
		"metered without one": wrap(func(c net.Conn) net.Conn { return relay.Metered(undated{deaf{c}}, new(relay.Meter)) }),
	} {
		for end, by := range map[string]func(g *rig){
			"cut": func(g *rig) { g.cancel(errors.New("enough")) },
			"reset": func(g *rig) {
				c := net.Conn(g.A)
				if over, ok := c.(*tls.Conn); ok {
					c = over.NetConn()
				}
				abort(t, c)
			},
			"end":   func(g *rig) { _, _ = g.A.CloseWrite(), g.B.CloseWrite() },
			"end a": func(g *rig) { _ = g.A.CloseWrite() },
			"end b": func(g *rig) { _ = g.B.CloseWrite() },
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				t.Parallel()
				r := newRelay(t, &relay.Config{LegsAfter: 1, CloseOnEOF: strings.HasPrefix(end, "end ")})
				g := newRig(t, r, a, tcp)
				write(t, g.A, make([]byte, 1000))
				readFull(t, g.B, make([]byte, 1000))
				by(g)
				res, _ := g.wait()
				if l := res.Legs; l == nil || !l.A.Known || !l.B.Known || l.A.Received < 1000 || l.B.Sent < 1000 {
					t.Errorf("ended by %v, legs %+v", res.Reason, l)
				}
			})
		}
	}
}

// undated is a connection that takes no deadlines.
type undated struct{ deaf }

func (undated) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (undated) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (undated) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// TestUnixKnowsNoReset: where the other side is reset, a peer on a unix socket reads an end of
// file, and its writes fail; only the result tells what it was.
func TestUnixKnowsNoReset(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r := newRelay(t, nil)
		g := d.newRig(t, r, unixStream, tcp)
		must.Do(t, ping(g.B, g.A, 1))
		abort(t, g.B)
		if n, err := g.A.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("it reads %d bytes, %v", n, err)
		}
		if res, err := g.wait(); res.Reason != relay.ReasonReset || res.Culprit != relay.SideB || err == nil {
			t.Errorf("ended by %v of %v, %v", res.Reason, res.Culprit, err)
		}
		must.Fail(g.A.Write([]byte("x")))(t, syscall.EPIPE)
	})
}

// untilSocket waits for a condition of the socket of a far end.
func untilSocket(t *testing.T, c halfConn, what string, is func(fd int) bool) {
	t.Helper()
	fd := sockets.FD(t, c.(*net.TCPConn))
	condition.Await(t, what, func() bool { return is(fd) })
}

// earlyClose has one peer answer and close while bytes of the other one are unread, so that its kernel resets the connection behind
// the answer, which the kernel of this side has acknowledged.
func earlyClose(t *testing.T, closes, reads halfConn, answer []byte) {
	t.Helper()
	write(t, reads, []byte("unread"))
	untilSocket(t, closes, "unread bytes", func(fd int) bool { n, err := sys.FIONREAD(fd); return err == nil && n == 6 })
	write(t, closes, answer)
	untilSocket(t, closes, "acknowledgement of all", func(fd int) bool { n, err := sys.SIOCOUTQ(fd); return err == nil && n == 0 })
	must.Do(t, closes.Close())
	time.Sleep(20 * time.Millisecond) // so that the reset has met the session: no condition shows that it goes on
}

// TestEarlyClose: of a side that was reset the other one gets all that had come before, though it reads late, and the reset only then.
func TestEarlyClose(t *testing.T) {
	t.Parallel()

	answer := bytes.Repeat([]byte("answer "), 200_000)
	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) {
				r := newRelay(t, &relay.Config{Engine: e})
				r.SetLinger(condition.Patience)
				for i := range 2 {
					g := d.newRig(t, r, tcp, tcp)
					closes, reads := g.B, g.A
					if i%2 == 1 {
						closes, reads = reads, closes
					}
					earlyClose(t, closes, reads, answer)
					got, err := io.ReadAll(reads)
					if !bytes.Equal(got, answer) || !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("%d of %d bytes, then %v, want all and a reset", len(got), len(answer), err)
					}
					if res, err := g.wait(); res.Reason != relay.ReasonReset || err == nil || res.AToB.Lost+res.BToA.Lost != 0 {
						t.Errorf("ended by %v, %v, lost %d and %d", res.Reason, err, res.AToB.Lost, res.BToA.Lost)
					}
				}
			})
		})
	}
}

// TestEarlyCloseOfNamed is TestEarlyClose with wrappers that show their socket only by RelayReader and RelayWriter. The accounts of
// both connections are known too.
func TestEarlyCloseOfNamed(t *testing.T) {
	t.Parallel()

	answer := bytes.Repeat([]byte("answer "), 200_000)
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"named":         func(c net.Conn) net.Conn { return lets{c} },
		"metered named": func(c net.Conn) net.Conn { return relay.Metered(lets{c}, new(relay.Meter)) },
		"named head":    func(c net.Conn) net.Conn { return lets{relay.Prefixed(c, nil)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t, nil)
			r.SetLinger(condition.Patience)
			client, a := tcp(t)
			server, b := tcp(t)
			s := r.NewSession(wrap(a), wrap(b))
			ends := start(t, s)
			must.Do(t, ping(client, server, 1))
			if l := s.Legs(); !l.A.Known || !l.B.Known {
				t.Errorf("the accounts are %+v", l)
			}
			earlyClose(t, server, client, answer)
			got, err := io.ReadAll(client)
			if !bytes.Equal(got, answer) || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d of %d bytes, then %v, want all and a reset", len(got), len(answer), err)
			}
			if o := end(t, ends); o.result.Reason != relay.ReasonReset || o.result.AToB.Lost+o.result.BToA.Lost != 0 {
				t.Errorf("ended by %v, lost %d and %d", o.result.Reason, o.result.AToB.Lost, o.result.BToA.Lost)
			}
		})
	}
}

// TestLostAfterEnd: bytes for a side that has closed are lost, though its socket took them: the side's kernel answers
// them by a reset.
func TestLostAfterEnd(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for _, e := range engines {
			g := d.newRig(t, newRelay(t, &relay.Config{Engine: e}), tcp, tcp)
			must.Do(t, ping(g.A, g.B, 1))
			must.Do(t, ping(g.B, g.A, 2))
			must.Do(t, g.B.Close())
			must.Do(t, expect(g.A, nil))
			sent := int64(50_000)
			write(t, g.A, content(1, 50_000))
			if !d.onLoop() { // goroutines see the reset at the next write
				awaitReset(t, g.near[1])
				write(t, g.A, "x")
				sent++
			}
			res, _ := g.wait()
			if res.Reason != relay.ReasonReset || res.Culprit != relay.SideB || res.AToB.Lost != sent || res.BToA.Lost != 0 {
				t.Errorf("%v: %+v, want %d lost bytes to B, and none to A", e, res, sent)
			}
		}
	})
}

// TestLostUnacknowledged: bytes that a socket took are lost if the side did not acknowledge them before the session ended by a
// time-out or a cut; an end of file behind them is no byte. A side that resets the connection may have taken them.
func TestLostUnacknowledged(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		const sent = 20_000
		for name, c := range map[string]struct {
			end    func(g *rig)
			reason relay.Reason
			closes bool
			lost   int64
		}{
			"time-out":              {reason: relay.ReasonError, lost: sent},
			"end of file, time-out": {reason: relay.ReasonError, closes: true, lost: sent},
			"reset": {end: func(g *rig) {
				must.Do(t, g.B.(*net.TCPConn).SetLinger(0))
				must.Do(t, g.B.Close())
			}, reason: relay.ReasonReset},
			"cut": {end: func(g *rig) { g.cancel(errors.New("enough")) }, reason: relay.ReasonCanceled, lost: sent},
		} {
			g := d.newRig(t, newRelay(t, nil), tcp, tcp)
			must.Do(t, ping(g.A, g.B, 1))
			must.Do(t, ping(g.B, g.A, 2))
			condition.Await(t, "acknowledgement", func() bool {
				n := -1
				g.near[1](func(fd int) { n, _ = sys.SIOCOUTQ(fd) })
				return n == 0
			})
			deafen(t, g.B.(*net.TCPConn))
			if c.end == nil {
				g.near[1](func(fd int) { must.Do(t, sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, 300)) })
			}
			write(t, g.A, content(1, sent))
			if c.closes {
				must.Do(t, g.A.CloseWrite())
			}
			g.until("bytes on their way", func(r relay.Result) bool { return r.AToB.Bytes() == sent+1 })
			if c.end != nil {
				c.end(g)
			}
			if res, _ := g.wait(); res.Reason != c.reason || res.AToB.Lost != c.lost || res.BToA.Lost != 0 {
				t.Errorf("%s: %+v, want %d lost bytes to B, and none to A", name, res, c.lost)
			}
		}
	})
}

// deafen makes the kernel drop everything that arrives for a connection, as if its host had vanished.
func deafen(t *testing.T, c *net.TCPConn) {
	t.Helper()
	nothing := []syscall.SockFilter{{Code: syscall.BPF_RET | syscall.BPF_K}}
	program := syscall.SockFprog{Len: uint16(len(nothing)), Filter: &nothing[0]}
	text := unsafe.String((*byte)(unsafe.Pointer(&program)), unsafe.Sizeof(program))
	err := syscall.SetsockoptString(sockets.FD(t, c), syscall.SOL_SOCKET, syscall.SO_ATTACH_FILTER, text)
	runtime.KeepAlive(nothing)
	if err == syscall.EPERM && syscall.Geteuid() != 0 {
		t.Skip("an ordinary user may attach no socket filter here")
	}
	must.Do(t, err)
}

// TestHalfCloseAfterReset: a client closes, its kernel resets the connection at the answer, and only the half-close finds out. The
// error is a reset, and names no shutdown.
func TestHalfCloseAfterReset(t *testing.T) {
	t.Parallel()

	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"plain":   func(c net.Conn) net.Conn { return c },
		"wrapped": func(c net.Conn) net.Conn { return struct{ *net.TCPConn }{c.(*net.TCPConn)} },
	} {
		t.Run(name, func(t *testing.T) {
			client, a := tcp(t)
			server, b := tcp(t)
			ends := start(t, newRelay(t, nil).NewSession(wrap(a), b))
			must.Do(t, client.Close())
			must.Get(io.ReadAll(server))(t)
			write(t, server, "answer")
			must.Do(t, must.Get(a.(*net.TCPConn).SyscallConn())(t).Control(func(fd uintptr) {
				condition.Await(t, "the reset", func() bool { state, err := sys.TCPState(int(fd)); return err == nil && state == sys.TCP_CLOSE })
			}))
			must.Do(t, server.Close())
			o := end(t, ends)
			if o.result.Reason != relay.ReasonReset || o.result.Culprit != relay.SideA || !errors.Is(o.err, syscall.ECONNRESET) {
				t.Errorf("ended by %v of %v, %v", o.result.Reason, o.result.Culprit, o.err)
			}
			text := fmt.Sprintf("penstock: relay: half-close tcp %v->%v: %v", a.LocalAddr(), client.LocalAddr(), syscall.ECONNRESET)
			if o.err != nil && o.err.Error() != text {
				t.Errorf("%q, want %q", o.err, text)
			}
		})
	}
}

// TestEarlyCloseIsCut: a session that waits for the side that was not reset ends at once when it is cut, and by itself
// when that side takes nothing.
func TestEarlyCloseIsCut(t *testing.T) {
	t.Parallel()

	answer := bytes.Repeat([]byte("answer "), 200_000)
	eachDriver(t, func(t *testing.T, d *driving) {
		r := newRelay(t, nil)
		for _, cut := range []bool{true, false} {
			r.SetLinger(time.Hour)
			if !cut {
				r.SetLinger(20 * time.Millisecond)
			}
			g := d.newRig(t, r, tcp, tcp)
			earlyClose(t, g.B, g.A, answer)
			if cut {
				must.Get(g.A.Write([]byte("more")))(t) // goroutines find the reset by writing to it
				g.until("the reset is found", func(r relay.Result) bool { return r.Reason == relay.ReasonReset })
				g.cancel(errors.New("cut"))
			}
			if res, err := g.wait(); res.Reason != relay.ReasonReset || err == nil || res.Culprit != relay.SideB {
				t.Errorf("cut %v: ended by %v of %v, %v, want the reset of b", cut, res.Reason, res.Culprit, err)
			}
		}
	})
}

// TestSpliceRefusedLate: a sandbox that comes over the process while sessions run
// refuses splice (and what else moves bytes in the kernel); every direction goes
// on by copying, and says why.
func TestSpliceRefusedLate(t *testing.T) {
	t.Parallel()

	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS, syscall.EINVAL} {
		t.Run(fmt.Sprintf("errno%d", int(errno)), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) { testSpliceRefusedLate(t, d, errno) })
		})
	}
}

func testSpliceRefusedLate(t *testing.T, d *driving, errno syscall.Errno) {
	pipequota.Share(t)
	pipes := must.Get(pipe.NewPool(nil))(t)
	defer pipes.Close()
	// Before the sandbox comes down the pool finds out that splice is to be had.
	p := must.Get(pipes.Get(0))(t)
	pipes.Put(p)
	if !privilege.Refused(t, errno, sys.SYS_SPLICE, sys.SYS_SENDFILE) {
		return
	}
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice, Pipes: pipes})
	g := d.newRig(t, r, tcp, tcp)
	g.exchange(content(1, 300_000), content(2, 200_000), 50_000)
	res := g.checkClean(300_000, 200_000)
	for _, f := range []relay.Flow{res.AToB, res.BToA} {
		if f.Spliced != 0 || f.Fallbacks[relay.FallbackRefused] != 1 {
			t.Fatalf("%v: %+v, want all copied and one refusal", errno, f)
		}
	}
	copyThrough(t, r, copyEnds[3], copyEnds[0], 1<<20, relay.EngineCopy) // file to tcp
}

// TestSpliceRefusedEarly: in a sandbox that refuses splice from the start, a relay
// copies, and says that there is no splice.
func TestSpliceRefusedEarly(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		if !privilege.Refused(t, syscall.EPERM, sys.SYS_SPLICE) {
			return
		}
		r := newRelay(t, nil)
		g := d.newRig(t, r, tcp, tcp)
		g.exchange(content(1, 300_000), nil, 50_000)
		res := g.checkClean(300_000, 0)
		if f := res.AToB; f.Spliced != 0 || f.Fallbacks[relay.FallbackUnsupported] != 1 {
			t.Fatalf("%+v, want all copied, splice unsupported", f)
		}
	})
}
