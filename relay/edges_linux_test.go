package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// TestEdges: whatever two peers do, in whatever order the kernel's edges come, every
// byte arrives and every session ends. Nothing wakes a session but epoll: an edge
// that is misread is a stall.
func TestEdges(t *testing.T) {
	t.Parallel()
	testEdges(t, time.Duration(full.Times(3, 7))*time.Second, nil)
}

// TestEdgesPaced: nor is any byte lost or held back for ever where sessions wait for their
// shares of a rate as well, beside their own.
func TestEdgesPaced(t *testing.T) {
	t.Parallel()

	testEdges(t, time.Duration(full.Times(2, 4))*time.Second, &relay.Limits{Bandwidth: relay.NewBucket(24<<20, 32<<10), PerConnection: relay.Rates{Both: 4 << 20}})
}

func testEdges(t *testing.T, budget time.Duration, limits *relay.Limits) {
	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) {
				r := newRelay(t, &relay.Config{Engine: e})
				d.limits = limits
				if d.onLoop() {
					d.looped(t, r)
				}
				var played atomic.Int64
				until := time.Now().Add(budget / time.Duration(2*len(engines)))
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for time.Now().Before(until) && !t.Failed() {
							newPlay(t, d, r, rand.Uint64()).run()
							played.Add(1)
						}
					})
				}
				wg.Wait()
				t.Logf("%d sessions, which rested %d times", played.Load(), r.Stats().Drivers.Rests)
			})
		})
	}
}

// A play is one session, and what its two peers do.
type play struct {
	t    testing.TB
	d    *driving
	r    *relay.Relay
	seed uint64
	tcp  bool
	a, b peer
}

// A peer writes its bytes and then ends its side or resets it, while it reads.
type peer struct {
	*rand.Rand
	conn   halfConn
	send   []byte
	urgent int // the position that is sent as urgent data; -1 for none
	resets bool
	slow   bool

	got      []byte
	err      error // of reading, nil for an end of file
	writeErr error // ECONNRESET is the reset that the reader then does not get, see sockets.Survivor
}

func newPlay(t testing.TB, d *driving, r *relay.Relay, seed uint64) *play {
	p := &play{t: t, d: d, r: r, seed: seed}
	rnd := rand.New(rand.NewPCG(seed, 0))
	p.tcp = rnd.IntN(4) > 0
	p.a.Rand, p.b.Rand = rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	p.a.script(p.tcp)
	p.b.script(p.tcp)
	p.b.resets = p.b.resets && !p.a.resets
	return p
}

var playBytes = sync.OnceValue(func() []byte { return content(9, 1<<20) })

// script decides what the peer is going to do.
func (p *peer) script(tcp bool) {
	n := p.IntN(200)
	switch p.IntN(6) {
	case 0:
		n = 0
	case 1:
		n = p.IntN(20_000)
	case 2:
		n = p.IntN(200_000)
	}
	from := p.IntN(1<<20 - n)
	p.send, p.urgent = playBytes()[from:][:n], -1
	if tcp && n > 0 && p.IntN(4) == 0 {
		p.urgent = []int{0, n / 2, n - 1}[p.IntN(3)]
	}
	p.resets = tcp && p.IntN(8) == 0
	p.slow = p.IntN(5) == 0
}

func (p *play) run() {
	near := [2]net.Conn{}
	p.a.conn, near[0] = p.pair(p.a.Rand)
	p.b.conn, near[1] = p.pair(p.b.Rand)
	if p.tcp { // a loop passes urgent bytes on as such
		setInline(p.t, p.a.conn.(*net.TCPConn))
		setInline(p.t, p.b.conn.(*net.TCPConn))
	}
	done := make(chan relay.Result, 1)
	var peers sync.WaitGroup
	own := rand.New(rand.NewPCG(p.seed, 4))
	early := own.IntN(2) == 0 // some begin before the session does
	begin := func() {
		for _, x := range []*peer{&p.a, &p.b} {
			_ = x.conn.SetDeadline(time.Now().Add(condition.Patience))
			peers.Go(func() { x.write() })
			peers.Go(func() { x.read() })
		}
	}
	if early {
		begin()
		pause(own)
	}
	p.start(near[0], near[1], done)
	if !early {
		begin()
	}
	select {
	case res := <-done:
		peers.Wait()
		p.check(res)
	case <-time.After(condition.Patience):
		p.t.Errorf("seed %d: stalled: %v; %v", p.seed, &p.a, &p.b)
	}
	p.a.conn.Close()
	p.b.conn.Close()
}

func (p *peer) String() string {
	return fmt.Sprintf("sends %d, urgent %d, resets %v; got %d, %v", len(p.send), p.urgent, p.resets, len(p.got), p.err)
}

func (p *play) start(a, b net.Conn, done chan<- relay.Result) {
	if p.tcp {
		setInline(p.t, a.(*net.TCPConn))
		setInline(p.t, b.(*net.TCPConn))
	}
	if !p.d.onLoop() {
		s := p.r.NewSession(a, b)
		s.Limit(p.d.limits)
		if err := s.Start(func(res relay.Result, _ error) { done <- res }); err != nil {
			p.t.Error(err)
		}
		return
	}
	on := p.d.loops[p.r]
	sa, sb := on.take(a), on.take(b)
	on.start(&loopSession{on: on, limits: p.d.limits, ended: func(res relay.Result, _ error) { done <- res }}, sa, sb)
}

// pair makes a connection, sometimes with small buffers.
func (p *play) pair(rnd *rand.Rand) (far halfConn, near net.Conn) {
	if !p.tcp {
		return unixStream(p.t)
	}
	f, n := sockets.TCPPair(p.t)
	if max(len(p.a.send), len(p.b.send)) < 50_000 && rnd.IntN(3) == 0 {
		size := 4096 << rnd.IntN(4)
		_, _ = f.SetReadBuffer(size), f.SetWriteBuffer(size)
		_, _ = n.SetReadBuffer(size), n.SetWriteBuffer(size)
	}
	return f, n
}

func pause(rnd *rand.Rand) {
	switch rnd.IntN(4) {
	case 0:
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond)
	case 1:
		runtime.Gosched()
	}
}

func (p *peer) write() {
	rest := p.send
	for len(rest) > 0 {
		n := min(len(rest), 1+p.IntN(1+len(p.send)))
		at := len(p.send) - len(rest)
		if at == p.urgent {
			if p.writeErr = sendUrgent(p.conn, rest[0]); p.writeErr != nil {
				return
			}
			rest = rest[1:]
			continue
		}
		if at < p.urgent {
			n = min(n, p.urgent-at)
		}
		n, err := p.conn.Write(rest[:n])
		if err != nil {
			p.writeErr = err
			return
		}
		rest = rest[n:]
		pauseWriter(p)
	}
	if p.resets {
		_ = p.conn.(*net.TCPConn).SetLinger(0)
		p.conn.Close()
		return
	}
	_ = p.conn.CloseWrite()
}

func pauseWriter(p *peer) {
	if len(p.send) < 1000 || p.IntN(8) == 0 {
		pause(p.Rand)
	}
}

func (p *peer) read() {
	// Not the writer's source: it is another goroutine.
	rnd := rand.New(rand.NewPCG(uint64(len(p.send)), 3))
	from, buf := sockets.Marked(p.conn), make([]byte, 64<<10)
	for {
		size := len(buf)
		if p.slow {
			size = 1 + rnd.IntN(5000)
			pause(rnd)
		}
		n, err := from.Read(buf[:size])
		p.got = append(p.got, buf[:n]...)
		if err == io.EOF {
			return
		}
		if err != nil {
			p.err = err
			return
		}
	}
}

// check: without a reset both peers got everything and a clean end. With one, what
// they got is the beginning of what was sent, and an end is clean only if it was one.
func (p *play) check(res relay.Result) {
	for _, way := range []struct {
		from, to *peer
		flow     relay.Flow
	}{{&p.a, &p.b, res.AToB}, {&p.b, &p.a, res.BToA}} {
		whole := bytes.Equal(way.to.got, way.from.send)
		switch {
		case !bytes.HasPrefix(way.from.send, way.to.got):
			p.fail(res, "other bytes than were sent")
		case !p.a.resets && !p.b.resets && (!whole || way.to.err != nil || way.flow.Reason != relay.ReasonEOF || way.flow.Lost != 0):
			p.fail(res, "not everything arrived")
		case p.tcp && !way.to.resets && way.to.err == nil && !errors.Is(way.to.writeErr, syscall.ECONNRESET) && (!whole || way.from.resets):
			p.fail(res, "a clean end that was none")
		}
	}
}

func (p *play) fail(res relay.Result, what string) {
	p.t.Errorf("seed %d: %s: a %v; b %v; %+v", p.seed, what, &p.a, &p.b, res)
}
