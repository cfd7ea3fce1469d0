package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/relay"
)

// TestNeverReads: backends that never read. Each session holds one lease and no more,
// and gives it back when it is cut. On a loop it is in the arena as far as that one's budget
// goes, and on the heap beyond, which is counted.
func TestNeverReads(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) { testNeverReads(t, d, e) })
		})
	}
}

func testNeverReads(t *testing.T, d *driving, e relay.Engine) {
	const pairs = 100
	r := newRelay(t, &relay.Config{Engine: e})
	if d.onLoop() {
		d.loops[r] = newLooped(t, r, &loop.Config{}, &arena.Config{Locals: 1, Size: 2 * arena.ChunkSize})
	}
	rigs, sent := make([]*rig, pairs), make([]int64, pairs)
	for i := range rigs {
		rigs[i] = d.newRig(t, r, smallTCP, smallTCP)
	}
	buffers := fillAll(t, d, r, rigs, sent)
	if e == relay.EngineCopy && buffers != pairs {
		t.Errorf("%d buffers: want %d", buffers, pairs)
	}
	if d.onLoop() {
		checkResidues(t, d.looped(t, r), buffers, e == relay.EngineCopy)
	}
	for _, g := range rigs {
		g.cancel(fmt.Errorf("enough"))
		if res, _ := g.wait(); res.AToB.Lost == 0 || res.AToB.Lost > 2<<20 {
			t.Fatalf("%+v", res)
		}
	}
	if pipes, buffers := d.holds(t, r); pipes != 0 || buffers != 0 {
		t.Errorf("after the end: %d pipes, %d buffers", pipes, buffers)
	}
}

// checkResidues looks where so many buffers are: in the arena, or where its budget is
// spent on the heap.
func checkResidues(t *testing.T, on *looped, buffers int64, spent bool) {
	t.Helper()
	var out arena.Usage
	on.do(func() {
		on.arena.Local(0).Flush()
		out = on.arena.Stats().ByPurpose[arena.Residue]
	})
	heap := buffers - (out.Out - 1) // one is warm
	if heap < 0 || heap > 0 && out.Refused < heap || out.Bytes > 2*arena.ChunkSize {
		t.Errorf("%d buffers, %d of them on the heap: %+v", buffers, heap, out)
	}
	if s := on.driver.Stats(); heap > 0 && s.HeapResidues == 0 || buffers > heap && s.Residues == 0 {
		t.Errorf("%d buffers, %d of them on the heap: %+v", buffers, heap, s)
	}
	if spent && heap == 0 {
		t.Errorf("none of %d buffers is on the heap: want the arena's budget spent", buffers)
	}
}

// TestCloseOnEOFArrived: bytes of both sides that have arrived before the loop sees the first end are delivered.
func TestCloseOnEOFArrived(t *testing.T) {
	t.Parallel()

	d := ofLoop()
	r := newRelay(t, &relay.Config{CloseOnEOF: true})
	for range 10 {
		g := d.newRig(t, r, tcp, tcp)
		d.looped(t, r).do(func() {
			for _, far := range []halfConn{g.B, g.A} {
				_, _ = far.Write(make([]byte, 1000))
				_ = far.CloseWrite()
				condition.Await(t, "all has arrived", func() bool { n, err := sys.SIOCOUTQ(sockets.FD(t, far.(*net.TCPConn))); return n == 0 && err == nil })
			}
		})
		must.Do(t, expect(g.A, make([]byte, 1000)), expect(g.B, make([]byte, 1000)))
		if res, err := g.wait(); err != nil || res.Reason != relay.ReasonEOF || res.AToB.Lost+res.BToA.Lost != 0 {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

// TestAcknowledgedIsNotIdle: while a side takes what has moved before, the session is not idle, also half closed. A
// side that has taken all, or takes nothing more, is idle.
func TestAcknowledgedIsNotIdle(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for name, x := range map[string]struct {
			ended, stops bool
			want         relay.Reason
		}{
			"open":                  {false, false, relay.ReasonIdle},
			"half closed":           {true, false, relay.ReasonHalfClose},
			"takes nothing more":    {false, true, relay.ReasonIdle},
			"half closed, and then": {true, true, relay.ReasonHalfClose},
		} {
			t.Run(name, func(t *testing.T) {
				const idle, sent, piece = 10 * time.Second, 192 << 10, 8 << 10
				r, c := d.clockedRelay(t, relay.Config{IdleTimeout: idle, HalfCloseTimeout: idle})
				g := d.newRig(t, r, tcp, func(t testing.TB) (halfConn, net.Conn) {
					far, near := sockets.TCPPair(t)
					must.Do(t, far.SetReadBuffer(32<<10))
					must.Do(t, near.SetWriteBuffer(1<<20))
					return far, near
				})
				if x.ended {
					must.Do(t, g.B.CloseWrite())
					g.until("half open", func(relay.Result) bool { return g.session.HalfOpen() })
				}
				must.Get(g.A.Write(make([]byte, sent)))(t)
				g.until("all is in the kernel", func(res relay.Result) bool { return res.AToB.Bytes() == sent })
				left := func() (n int) {
					g.near[1](func(fd int) { n, _ = sys.SIOCOUTQ(fd) })
					return n
				}
				looks, got := 0, 0
				for left() > 0 && !(x.stops && looks > 1) {
					c.advance(idle)
					before := left() // the kernel acknowledges when it likes: what it has until now, the look may have seen
					if before == 0 {
						break
					}
					running(t, g)
					looks++
					for got < sent && left() == before { // a window that has opened by too little lets nothing through
						got += must.Get(g.B.Read(make([]byte, piece)))(t)
					}
					condition.Await(t, "more is acknowledged", func() bool { return left() < before })
				}
				if looks < 2 {
					t.Fatalf("all was acknowledged after %d looks", looks)
				}
				c.advance(idle)
				for before := sent; x.stops && g.session.Result().Reason == relay.ReasonNone; {
					now := left() // something was acknowledged since the look before, and the kernel may do so again
					if now == before {
						t.Fatalf("the session is not idle, but %d bytes stay unacknowledged", now)
					}
					before = now
					c.advance(idle)
				}
				expectTimeout(t, g, x.want)
			})
		}
	})
}

// TestDrivenAllocates: a message and its echo through a session on a loop allocate
// nothing.
func TestDrivenAllocates(t *testing.T) {
	for _, e := range engines {
		g := ofLoop().newRig(t, newRelay(t, &relay.Config{Engine: e, IdleTimeout: 3600e9}), tcp, tcp)
		message := make([]byte, 4096)
		n := testing.AllocsPerRun(500, func() {
			for _, way := range [][2]net.Conn{{g.A, g.B}, {g.B, g.A}} {
				write(t, way[0], message)
				readFull(t, way[1], message)
			}
		})
		if n != 0 {
			t.Errorf("%v: %v allocations for a message and its echo", e, n)
		}
	}
}

// TestOneTurnEach: however busy a session is, it is called again once in a turn.
func TestOneTurnEach(t *testing.T) {
	t.Parallel()

	cut := int64(0)
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		d := ofLoop()
		g := d.newRig(t, r, tcp, tcp)
		on, moved := d.looped(t, r), make(chan struct{})
		go func() {
			defer close(moved)
			g.exchange(content(1, 8<<20), content(2, 8<<20), 1<<20)
		}()
		most := 0
		for busy := true; busy; {
			select {
			case <-moved:
				busy = false
			default:
				on.do(func() { most = max(most, reflect.ValueOf(on.loop).Elem().FieldByName("again").Len()) })
			}
		}
		g.checkClean(8<<20, 8<<20)
		if most > 1 {
			t.Errorf("%v: one session waited in %d places", e, most)
		}
		cut += on.driver.Stats().TurnsCut
	}
	if cut == 0 {
		t.Error("no turn was ever cut for bulk")
	}
}

// TestDescriptorsSpent: at RLIMIT_NOFILE there are no pipes. The sessions copy, and
// say so.
func TestDescriptorsSpent(t *testing.T) {
	eachDriver(t, func(t *testing.T, d *driving) {
		pipes := must.Get(pipe.NewPool(&pipe.Config{IdleTime: time.Millisecond}))(t)
		defer pipes.Close()
		r := newRelay(t, &relay.Config{Engine: relay.EngineSplice, Pipes: pipes})
		g := d.newRig(t, r, tcp, tcp)
		for _, way := range [][2]net.Conn{{g.A, g.B}, {g.B, g.A}} { // lest one comes later
			must.Do(t, ping(way[0], way[1], 1))
		}
		waitQuiet(t, r)
		soft, hard, err := sys.RlimitNoFileRange()
		must.Do(t, err)
		highest := uint64(0)
		for fd := range leak.Take() {
			highest = max(highest, uint64(fd))
		}
		// What is below is taken up, so that not even one is left.
		var taken []int
		defer func() {
			for _, fd := range taken {
				_ = syscall.Close(fd)
			}
			must.Do(t, sys.SetRlimitNoFile(soft, hard))
		}()
		must.Do(t, sys.SetRlimitNoFile(highest+1, hard))
		for {
			fd, err := sys.Dup(0)
			if err != nil {
				break
			}
			taken = append(taken, fd)
		}
		g.exchange(content(1, 300_000), content(2, 100_000), 50_000)
		res := g.checkClean(300_001, 100_001)
		for _, f := range []relay.Flow{res.AToB, res.BToA} {
			if f.Spliced > 1 || f.Fallbacks[relay.FallbackDescriptors] == 0 {
				t.Errorf("%+v, want all copied for want of descriptors", f)
			}
		}
	})
}

// TestSpliceRefusedInBetween: sessions have pipes full of what their destinations did
// not take when a sandbox comes down that refuses splice. What they get out of the
// pipes they keep apart, though their destinations still take it bit by bit.
func TestSpliceRefusedInBetween(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		if !privilege.Refused(t, syscall.EPERM, sys.SYS_SENDFILE) {
			return
		}
		r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
		rigs, sent := make([]*rig, 8), make([]int64, 8)
		for i := range rigs {
			rigs[i] = d.newRig(t, r, smallTCP, func(t testing.TB) (halfConn, net.Conn) {
				far, near := unixStream(t)
				_ = near.(*net.UnixConn).SetWriteBuffer(4096) // takes much less than a pipe holds
				return far, near
			})
		}
		if buffers := fillAll(t, d, r, rigs, sent); buffers != 0 {
			t.Fatalf("%d buffers instead of pipes", buffers)
		}
		must.Do(t, sys.SeccompRefuse(syscall.EPERM, sys.SYS_SPLICE))
		got := make([][]byte, len(rigs))
		for _, g := range rigs {
			_ = g.A.CloseWrite()
			_ = g.B.CloseWrite()
		}
		piece := make([]byte, 10_000)
		for left := len(rigs); left > 0; {
			left = 0
			for i, g := range rigs {
				n, err := g.B.Read(piece)
				got[i] = append(got[i], piece[:n]...)
				if err == nil {
					left++
				} else if err != io.EOF {
					t.Fatal(err)
				}
			}
		}
		for i, g := range rigs {
			if int64(len(got[i])) != sent[i] || !isFiller(got[i], fillStart(i)) {
				t.Errorf("session %d: %d of %d bytes, or other ones", i, len(got[i]), sent[i])
			}
			if res := g.checkClean(int(sent[i]), 0); res.AToB.Fallbacks[relay.FallbackRefused] == 0 {
				t.Errorf("%+v", res.AToB)
			}
		}
	})
}

// busyPairs are the numbers of busy sessions at which an unprivileged user's pipe
// quota matters: 64 MiB is 64 pipes of 1 MiB, which io.Copy spends on 32 joined
// pairs, and 1,024 pipes of 64 KiB.
var busyPairs = []int{32, 64, 1100}

// TestBusyPairs: as an ordinary user, all directions hold bytes at once because
// nobody reads. No pipe is made that the kernel degrades, those that get no pipe
// copy and say so, and every byte arrives.
func TestBusyPairs(t *testing.T) {
	t.Parallel()

	for _, pairs := range busyPairs {
		t.Run(fmt.Sprint(pairs), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) {
				if privilege.Alone(t) {
					testBusyPairs(t, d, pairs)
				}
			})
		})
	}
}

func testBusyPairs(t *testing.T, d *driving, pairs int) {
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	rigs := make([]*rig, pairs)
	sent := make([]int64, pairs)
	for i := range rigs {
		rigs[i] = d.newRig(t, r, smallTCP, smallTCP)
		_ = rigs[i].A.SetDeadline(time.Now().Add(10 * condition.Patience)) // a gigabyte in all
		_ = rigs[i].B.SetDeadline(time.Now().Add(10 * condition.Patience))
	}
	buffers := fillAll(t, d, r, rigs, sent)
	var wg sync.WaitGroup
	for i, g := range rigs {
		wg.Go(func() {
			g.A.CloseWrite()
			g.B.CloseWrite()
			if _, n, err := receive(g.B); n != sent[i] || err != nil {
				t.Errorf("got %d of %d bytes, error %v", n, sent[i], err)
			}
		})
	}
	wg.Wait()
	fell := int64(0)
	for i, g := range rigs {
		res := g.checkClean(int(sent[i]), 0)
		fell += min(1, res.AToB.Fallbacks[relay.FallbackBudget])
	}
	s := r.Stats().Pipes
	if s.Degraded != 0 || s.Refused != 0 || fell < buffers {
		t.Errorf("%d fell back to copying, %d held buffers; %+v", fell, buffers, s)
	}
}

// fillStart is where in the filler the bytes of the i-th rig begin, lest they all have
// the same.
func fillStart(i int) int64 { return int64(i) * 10_007 }

// fillAll fills every rig's way from A to B, until each holds a lease, and returns
// how many of these are buffers.
func fillAll(t *testing.T, d *driving, r *relay.Relay, rigs []*rig, sent []int64) int64 {
	t.Helper()
	var pipes, buffers int64
	for range 20 {
		var wg sync.WaitGroup
		for i, g := range rigs {
			wg.Go(func() { sent[i] += fillFrom(t, g.A, fillStart(i)+sent[i]) })
		}
		wg.Wait()
		if pipes, buffers = d.holds(t, r); pipes+buffers == int64(len(rigs)) {
			return buffers
		}
	}
	t.Fatalf("%d blocked pairs hold %d pipes and %d buffers", len(rigs), pipes, buffers)
	panic("unreachable")
}

// TestIdlePairs: 4,500 joined pairs, each after 64 KiB both ways through pipes,
// hold no pipe, no buffer, and two descriptors each.
//
// On a loop they have no goroutine either.
func TestIdlePairs(t *testing.T) { eachDriver(t, testIdlePairs) }

func testIdlePairs(t *testing.T, d *driving) {
	const pairs = 4500
	var lim syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim))
	if lim.Cur < 2*pairs+200 {
		t.Skipf("RLIMIT_NOFILE is %d, the test needs %d", lim.Cur, 2*pairs+200)
	}
	pipes := must.Get(pipe.NewPool(&pipe.Config{IdleTime: 100 * time.Millisecond}))(t)
	defer pipes.Close()
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice, Pipes: pipes, IdleTimeout: time.Hour})
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	origin := startHelper(t, "origin")
	to := origin.line()
	dialers := startHelper(t, "dialers", "RELAY_TEST_ADDR="+l.Addr().String(), fmt.Sprint("RELAY_TEST_CONNS=", pairs))
	if d.onLoop() {
		d.looped(t, r)
	}
	before, goroutines := leak.Take(), runtime.NumGoroutine()

	results := serve(t, d, r, l, to, pairs)
	if got := dialers.line(); got != "ready" {
		t.Fatalf("dialers say %q", got)
	}
	quiet := waitQuiet(t, r)
	if quiet.Pipes.Made == 0 {
		t.Fatalf("no pipe was ever made: %+v", quiet)
	}
	if opened := leak.Take().Since(before); len(opened) != 2*pairs {
		t.Errorf("%d descriptors above the baseline, want %d; not sockets: %v", len(opened), 2*pairs, notSockets(opened))
	}

	if d.onLoop() { // those that have handed over a session may not have ended yet; the rest are the test's own
		condition.Await(t, "few goroutines", func() bool { return runtime.NumGoroutine()-goroutines <= 8 })
	}
	if pipes, buffers := d.holds(t, r); pipes != 0 || buffers != 0 {
		t.Errorf("idle sessions hold %d pipes, %d buffers", pipes, buffers)
	}

	dialers.stop()
	for range pairs {
		res := <-results
		if res.Reason != relay.ReasonEOF || res.AToB.Spliced != idleBytes || res.BToA.Spliced != idleBytes {
			t.Fatalf("a session did %+v", res)
		}
	}
}

// serve joins the next n connections of l to connections of its own to addr.
func serve(t *testing.T, d *driving, r *relay.Relay, l net.Listener, addr string, n int) <-chan relay.Result {
	results := make(chan relay.Result, n)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				s, err := net.Dial("tcp", addr)
				if err != nil {
					c.Close()
					t.Error(err)
					return
				}
				if d.onLoop() {
					on := d.loops[r]
					on.start(&loopSession{on: on, ended: func(res relay.Result, _ error) { results <- res }}, on.take(c), on.take(s))
					return
				}
				res, _ := r.Join(ctx, c, s)
				results <- res
			})
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { l.Close(); cancel() })
	return results
}

// waitQuiet waits until nothing is leased and no pipe lies idle.
func waitQuiet(t *testing.T, r *relay.Relay) relay.Stats {
	t.Helper()
	var s relay.Stats
	condition.Await(t, "nothing is leased, and no pipe idle", func() bool {
		s = r.Stats()
		return s.Pipes.Leased == 0 && s.Pipes.Idle == 0 && s.Buffers.Live == 0
	})
	return s
}

func notSockets(fds []string) []string {
	var odd []string
	for _, fd := range fds {
		if len(odd) < 10 && !strings.Contains(fd, "socket:") {
			odd = append(odd, fd)
		}
	}
	return odd
}
