package relay_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// closing is the tests, and the end of the default relay, whose pipes would be taken for leaked.
type closing struct{ *testing.M }

func (c closing) Run() int {
	code := c.M.Run()
	if err := relay.CloseDefault(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	runHelper()
	leak.Main(closing{m})
}

func newRelay(t testing.TB, cfg *relay.Config) *relay.Relay {
	t.Helper()
	pipequota.Share(t)
	r := must.Get(relay.New(cfg))(t)
	t.Cleanup(func() {
		s := r.Stats()
		if s.Pipes.Leased != 0 || s.Buffers.Live != 0 {
			t.Errorf("still leased: %d pipes, %d buffers", s.Pipes.Leased, s.Buffers.Live)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// halfConn is a connection that can pass on an end of file.
type halfConn interface {
	net.Conn
	CloseWrite() error
}

// A rig is a session between two peers: far A ⇄ near a ⇄ relay ⇄ near b ⇄ far B.
type rig struct {
	t       testing.TB
	A, B    halfConn
	near    [2]near // those of A and B
	session joint
	cancel  func(cause error)
	done    chan struct{}
	result  relay.Result
	err     error
}

// A near calls f with the descriptor of an end that a session has and that has not
// ended; it stays the session's.
type near func(f func(fd int))

// A joint is a session, whichever driver it has.
type joint interface {
	Result() relay.Result
	HalfOpen() bool
	Guarded() [2]bool
	Limits() *relay.Limits
}

// network makes the connections of one side of a rig: far, near.
type network func(testing.TB) (far halfConn, near net.Conn)

func tcp(t testing.TB) (halfConn, net.Conn) {
	c, s := sockets.TCPPair(t)
	return c, s
}

func unixStream(t testing.TB) (halfConn, net.Conn) {
	c, s := sockets.UnixPair(t)
	return c, s
}

// smallTCP is tcp with small kernel buffers, so that a thousand pairs fit.
func smallTCP(t testing.TB) (halfConn, net.Conn) {
	far, near := sockets.TCPPair(t)
	for _, c := range []*net.TCPConn{far, near} {
		must.Do(t, c.SetReadBuffer(128<<10))
		must.Do(t, c.SetWriteBuffer(128<<10))
	}
	return far, near
}

func (g *rig) run(ctx context.Context, s *relay.Session) {
	g.result, g.err = s.Run(ctx)
	close(g.done)
}

func (g *rig) wait() (relay.Result, error) {
	g.t.Helper()
	select {
	case <-g.done:
		return g.result, g.err
	case <-time.After(condition.Patience):
		g.t.Fatalf("session has not ended: %+v", g.session.Result())
		panic("unreachable")
	}
}

// until waits for a condition of the live result.
func (g *rig) until(what string, cond func(relay.Result) bool) relay.Result {
	g.t.Helper()
	var res relay.Result
	condition.Await(g.t, what, func() bool { res = g.session.Result(); return cond(res) })
	return res
}

// content returns n bytes that are their own position's witness.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = src.Read(b)
	return b
}

// send writes all of b to c in pieces, then passes on the end.
func send(c halfConn, b []byte, piece int) error {
	for len(b) > 0 {
		n, err := c.Write(b[:min(piece, len(b))])
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		b = b[n:]
	}
	return c.CloseWrite()
}

// receive reads c to its end and returns the hash of what came, and how much.
func receive(c io.Reader) (sum [32]byte, n int64, err error) {
	h := sha256.New()
	n, err = io.Copy(struct{ io.Writer }{h}, struct{ io.Reader }{c})
	return [32]byte(h.Sum(nil)), n, err
}

// exchange sends toB and toA at the same time and checks what arrives.
func (g *rig) exchange(toB, toA []byte, piece int) {
	g.t.Helper()
	var wg sync.WaitGroup
	run := func(what string, f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				g.t.Errorf("%s: %v", what, err)
			}
		})
	}
	run("A sends", func() error { return send(g.A, toB, piece) })
	run("B sends", func() error { return send(g.B, toA, piece) })
	run("B receives", func() error { return expect(g.B, toB) })
	run("A receives", func() error { return expect(g.A, toA) })
	wg.Wait()
}

// expect reads c to its end and compares.
func expect(c io.Reader, want []byte) error {
	sum, n, err := receive(c)
	switch {
	case err != nil:
		return fmt.Errorf("after %d of %d bytes: %w", n, len(want), err)
	case n != int64(len(want)) || sum != sha256.Sum256(want):
		return fmt.Errorf("got %d bytes with another hash, want %d", n, len(want))
	}
	return nil
}

// collect reads a connection to its end beside the test.
func collect(c net.Conn) <-chan []byte {
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(c)
		got <- b
	}()
	return got
}

// arrives fails unless what was collected is what was sent.
func arrives(t *testing.T, at <-chan []byte, sent []byte) {
	t.Helper()
	if got := <-at; !bytes.Equal(got, sent) {
		t.Errorf("%d bytes have come of %d, or others", len(got), len(sent))
	}
}

// isReset fails unless a connection is reset before a byte comes.
func isReset(t *testing.T, c io.Reader) {
	t.Helper()
	if n, err := io.Copy(io.Discard, struct{ io.Reader }{c}); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d bytes have come, and then %v", n, err)
	}
}

// checkClean fails unless the session ended well, with these byte counts.
func (g *rig) checkClean(aToB, bToA int) relay.Result {
	g.t.Helper()
	res, err := g.wait()
	if err != nil || res.Reason != relay.ReasonEOF {
		g.t.Fatalf("ended by %v, error %v", res.Reason, err)
	}
	for _, f := range []struct {
		flow relay.Flow
		want int
	}{{res.AToB, aToB}, {res.BToA, bToA}} {
		if f.flow.Bytes() != int64(f.want) || f.flow.Lost != 0 || f.flow.Reason != relay.ReasonEOF || res.Culprit != relay.SideNone {
			g.t.Fatalf("culprit %v, flow %+v, want %d bytes, none lost, end passed on", res.Culprit, f.flow, f.want)
		}
	}
	return res
}

// runHelper runs this binary as one of the helper processes of the tests, if it
// was started as one.
func runHelper() {
	if name := os.Getenv("RELAY_TEST_HELPER"); name != "" {
		helpers[name]()
		os.Exit(0)
	}
}

var helpers = map[string]func(){}

// pass sends b through a session.
func pass(t *testing.T, from io.Writer, to io.Reader, b []byte) {
	t.Helper()
	written := make(chan error, 1)
	go func() { _, err := from.Write(b); written <- err }()
	readFull(t, to, make([]byte, len(b)))
	must.Do(t, <-written)
}

// A driving is one of the two drivers of sessions, for one test: a goroutine for
// each direction, or one loop for all the sessions of a relay.
type driving struct {
	loops  map[*relay.Relay]*looped // nil: goroutines
	clock  *fakeClock               // nil: the system's
	proven bool                     // sessions count as proven bulk from their beginning
	limits *relay.Limits            // of the sessions that are made from now on
	change func(a, b *relay.Socket) // changes the sockets of those on a loop; nil: nothing does
}

// eachDriver runs a test with either driver.
func eachDriver(t *testing.T, test func(t *testing.T, d *driving)) {
	t.Run("goroutines", func(t *testing.T) { test(t, &driving{}) })
	t.Run("loop", func(t *testing.T) { test(t, ofLoop()) })
}

// both runs a test with either driver, beside other tests.
func both(t *testing.T, test func(t *testing.T, d *driving)) {
	t.Helper()
	t.Parallel()
	eachDriver(t, test)
}

func write[B ~string | ~[]byte](t testing.TB, to io.Writer, b B) {
	t.Helper()
	must.Get(to.Write([]byte(b)))(t)
}

func readFull(t testing.TB, from io.Reader, b []byte) {
	t.Helper()
	must.Get(io.ReadFull(from, b))(t)
}

func (d *driving) onLoop() bool { return d.loops != nil }

// networks are those that the driver takes: a loop takes plain sockets only.
func (d *driving) networks() map[string]network {
	if d.onLoop() {
		return map[string]network{"tcp": tcp, "unix": unixStream}
	}
	return networks
}

// newRig starts a session. The test must end it; wait returns what it did.
func (d *driving) newRig(t testing.TB, r *relay.Relay, a, b network) *rig {
	t.Helper()
	g := &rig{t: t, done: make(chan struct{})}
	var nearA, nearB net.Conn
	g.A, nearA = a(t)
	g.B, nearB = b(t)
	_ = g.A.SetDeadline(time.Now().Add(condition.Patience))
	_ = g.B.SetDeadline(time.Now().Add(condition.Patience))
	if d.onLoop() {
		on := d.looped(t, r)
		if on.run(g, nearA, nearB, d.limits, d.change); d.proven {
			on.do(g.session.(*loopSession).driven.Prove)
		}
	} else {
		ctx, cancel := context.WithCancelCause(context.Background())
		g.cancel = cancel
		g.near = [2]near{control(t, nearA), control(t, nearB)}
		s := r.NewSession(nearA, nearB)
		s.Limit(d.limits)
		if d.proven {
			s.Prove()
		}
		g.session = s
		go g.run(ctx, s)
	}
	t.Cleanup(func() {
		g.cancel(errors.New("test is over"))
		<-g.done
	})
	return g
}

// control lends out the descriptor of a connection that a session on goroutines has.
func control(t testing.TB, c net.Conn) near {
	return func(f func(fd int)) {
		raw, err := c.(syscall.Conn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// newRig is for what only goroutines can drive.
func newRig(t testing.TB, r *relay.Relay, a, b network) *rig {
	t.Helper()
	return new(driving).newRig(t, r, a, b)
}

// holds is what the sessions of r hold: pipes, and buffers with bytes in them.
func (d *driving) holds(t testing.TB, r *relay.Relay) (pipes, buffers int64) {
	t.Helper()
	s := r.Stats()
	pipes, buffers = s.Pipes.Leased, s.Buffers.Live
	if d.onLoop() {
		on := d.looped(t, r)
		on.do(func() {
			for _, s := range on.sessions {
				buffers += s.driven.Buffers()
			}
		})
	}
	return pipes, buffers
}

// raised is how many directions of r have their low-water mark raised.
func (d *driving) raised(t testing.TB, r *relay.Relay) (n int) {
	t.Helper()
	if !d.onLoop() {
		return r.Raised()
	}
	on := d.looped(t, r)
	on.do(func() { n = on.driver.Raised() })
	return n
}

// clockedRelay is a relay with sessions that read the time from a clock of the
// test's.
func (d *driving) clockedRelay(t *testing.T, cfg relay.Config) (*relay.Relay, *fakeClock) {
	t.Helper()
	r := newRelay(t, &cfg)
	d.clock = &fakeClock{t: time.Hour}
	r.SetClock(d.clock.now, d.clock.afterFunc)
	return r, d.clock
}

// A looped is a loop that drives the sessions of one relay. When the test is over
// nothing must be left on it, nor of its arena.
type looped struct {
	t      testing.TB
	loop   *loop.Loop
	driver *relay.Driver
	arena  *arena.Arena
	ran    chan error

	sessions []*loopSession // all that were started; the loop's
}

// looped returns the loop that drives r's sessions.
func (d *driving) looped(t testing.TB, r *relay.Relay) *looped {
	t.Helper()
	if d.loops[r] == nil {
		cfg := &loop.Config{}
		if clock := d.clock; clock != nil {
			cfg.Now = func() int64 { return int64(clock.now()) }
		}
		on := newLooped(t, r, cfg, &arena.Config{Locals: 1})
		if d.clock != nil {
			d.clock.advanced = append(d.clock.advanced, on.turn)
		}
		d.loops[r] = on
		t.Cleanup(func() { delete(d.loops, r) }) // a subtest's loop ends with it
	}
	return d.loops[r]
}

// newLooped makes and runs a loop. It ends with the test, before the relay.
func newLooped(t testing.TB, r *relay.Relay, cfg *loop.Config, memory *arena.Config) *looped {
	t.Helper()
	l, err := loop.New(cfg)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	must.Do(t, err)
	mem := must.Get(arena.New(memory))(t)
	d := must.Get(r.NewDriver(l, mem.Local(0)))(t)
	on := &looped{t: t, loop: l, driver: d, arena: mem, ran: make(chan error, 1)}
	go func() { on.ran <- l.Run() }()
	t.Cleanup(on.close)
	return on
}

func (on *looped) close() {
	on.loop.Stop()
	if err := <-on.ran; err != nil {
		on.t.Error(err)
	}
	if n := on.driver.Sessions(); n != 0 {
		on.t.Errorf("%d sessions are left", n)
	}
	if n := registered(on.loop); n != 0 {
		on.t.Errorf("%d descriptors are left on the loop", n)
	}
	if err := on.driver.Close(); err != nil {
		on.t.Error(err)
	}
	on.arena.Local(0).Flush()
	if s := on.arena.Stats(); s.ByPurpose[arena.Residue].Out != 0 || s.Stale != 0 {
		on.t.Errorf("arena: %+v", s)
	}
	if err := errors.Join(on.arena.Close(), on.loop.Close()); err != nil {
		on.t.Error(err)
	}
}

// registered is how many slots of a loop's table are in use.
func registered(l *loop.Loop) int64 {
	return reflect.ValueOf(l).Elem().FieldByName("table").FieldByName("used").Int()
}

// ofLoop makes a driving of a loop alone.
func ofLoop() *driving { return &driving{loops: map[*relay.Relay]*looped{}} }

// do runs f on the loop and waits for its end.
func (on *looped) do(f func()) {
	done := make(chan struct{})
	if err := on.loop.Post(func() { f(); close(done) }); err != nil {
		on.t.Errorf("post: %v", err)
		return
	}
	<-done
}

// turn waits until a whole turn has begun and ended, its timers included: one that
// is posted from outside while a turn runs is called in the next.
func (on *looped) turn() {
	for range 3 {
		on.do(func() {})
	}
}

// A loopSession is a session on a loop, seen from other goroutines.
type loopSession struct {
	on     *looped
	driven relay.Driven
	limits *relay.Limits
	ended  func(relay.Result, error)
}

func (s *loopSession) Ended(_ *relay.Driven, res relay.Result, err error) { s.ended(res, err) }

func (s *loopSession) Result() (res relay.Result) {
	s.on.do(func() { res = s.driven.Result() })
	return res
}

func (s *loopSession) HalfOpen() (half bool) {
	s.on.do(func() { half = s.driven.HalfOpen() })
	return half
}

func (s *loopSession) Guarded() (both [2]bool) {
	s.on.do(func() { both = s.driven.Guarded() })
	return both
}

func (s *loopSession) Limits() (l *relay.Limits) {
	s.on.do(func() { l = s.driven.Limits() })
	return l
}

func (s *loopSession) cut(cause error) { s.on.do(func() { s.driven.Cut(cause) }) }

// run starts the session of a rig.
func (on *looped) run(g *rig, nearA, nearB net.Conn, limits *relay.Limits, change func(a, b *relay.Socket)) {
	s := &loopSession{on: on, limits: limits, ended: func(res relay.Result, err error) {
		g.result, g.err = res, err
		close(g.done)
	}}
	g.session, g.cancel = s, s.cut
	a, b := on.take(nearA), on.take(nearB)
	for i, fd := range []int{a.FD, b.FD} {
		g.near[i] = func(f func(fd int)) { on.do(func() { f(fd) }) }
	}
	if change != nil {
		change(&a, &b)
	}
	on.start(s, a, b)
}

// start starts a session of two sockets that are not registered yet.
func (on *looped) start(s *loopSession, a, b relay.Socket) {
	var err error
	on.do(func() {
		var errA, errB error
		a.ID, errA = on.loop.Add(a.FD, 0, &s.driven)
		b.ID, errB = on.loop.Add(b.FD, 1, &s.driven)
		if err = errors.Join(errA, errB); err == nil {
			on.sessions = append(on.sessions, s)
			on.driver.StartLimited(&s.driven, a, b, s, s.limits)
		}
	})
	must.Do(on.t, err)
}

// take takes a connection out of the runtime's hands.
func (on *looped) take(c net.Conn) relay.Socket {
	fd := must.Get(loop.Take(c.(syscall.Conn)))(on.t)
	_, isTCP := c.(*net.TCPConn)
	return relay.Socket{FD: fd, TCP: isTCP}
}

var filler = sync.OnceValue(func() []byte { return content(5, 1<<20) })

// fillUp writes to c until the whole way to a peer that does not read is full
// (nothing more went in for a while), and returns how many bytes went in.
func fillUp(t testing.TB, c halfConn) int64 {
	t.Helper()
	return fillFrom(t, c, 0)
}

// fillFrom is fillUp with the filler from a position on, again and again.
func fillFrom(t testing.TB, c halfConn, at int64) int64 {
	t.Helper()
	var sent int64
	block := filler()
	const window = 20 * time.Millisecond
	for quiet, windows := 0, 0; quiet < 3 && windows < 250; windows++ {
		end := time.Now().Add(window)
		_ = c.SetWriteDeadline(end)
		for {
			n, err := c.Write(block[(at+sent)%int64(len(block)):])
			sent += int64(n)
			if n > 0 {
				quiet = 0
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			must.Do(t, err)
		}
		if quiet++; time.Since(end) > window/2 {
			quiet = 0 // we were late ourselves, and so may be who moves the bytes
		}
	}
	_ = c.SetWriteDeadline(time.Now().Add(condition.Patience))
	return sent
}

// isFiller reports whether b is what fillFrom writes from a position on.
func isFiller(b []byte, at int64) bool {
	for block := filler(); len(b) > 0; {
		want := block[at%int64(len(block)):]
		want = want[:min(len(want), len(b))]
		if !bytes.Equal(b[:len(want)], want) {
			return false
		}
		b, at = b[len(want):], at+int64(len(want))
	}
	return true
}
