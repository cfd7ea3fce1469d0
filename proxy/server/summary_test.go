package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/relay"
)

// forwarding starts a load balancer with changed options in front of one endpoint.
func forwarding(t *testing.T, endpoint string, change func(*server.Options)) *rig {
	t.Helper()
	return &rig{loadbalancer.Setting{Change: change}.Start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, endpoint))}
}

// discard reads all bytes.
func discard(c net.Conn) { io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}) }

// sip reads all bytes, a few at a time, so that it falls behind.
func sip(c net.Conn) {
	io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 2048))
}

// pour writes until the summary is as expected.
func pour(t *testing.T, r *rig, enough func(admin.Summary) bool) {
	t.Helper()
	c, piece := client(t, r.At("l")), make([]byte, 1<<20)
	for !enough(r.Summary()) {
		if _, err := c.Write(piece); err != nil {
			t.Fatalf("%v, %+v", err, r.Summary())
		}
	}
	c.Close()
	r.Until("the client has left", func() bool { return r.Summary().Connections.Active == 0 })
}

// TestSummaryOfTheEngine: the engines' choices for sessions are counted, and the counts stay
// after the end.
func TestSummaryOfTheEngine(t *testing.T) {
	t.Parallel()

	pipequota.Share(t)
	r := forwarding(t, sockets.Server(t, discard), nil)
	if s := r.Summary(); s.Engine != (admin.Engine{}) {
		t.Errorf("at the beginning: %+v", s.Engine)
	}
	pour(t, r, func(s admin.Summary) bool {
		return s.Engine.Promotions > 0 && s.Engine.PipeGrowths > 0 && s.Engine.TurnsCut > 0 && s.Pipes.Made > 0
	})
	before := r.Summary()
	if err := r.End(); err != nil {
		t.Error(err)
	}
	if s := r.Summary(); s.Engine != before.Engine {
		t.Errorf("after the end: %+v, want %+v", s.Engine, before.Engine)
	}
}

// TestMaxPipeSize: pipes with a maximum size do not grow.
func TestMaxPipeSize(t *testing.T) {
	t.Parallel()

	pipequota.Share(t)
	r := forwarding(t, sockets.Server(t, discard), func(o *server.Options) { o.MaxPipeSize, o.TailDelay, o.Gather = 64<<10, -1, -1 })
	pour(t, r, func(s admin.Summary) bool { return s.Bytes.ClientToEndpoint.Spliced > 32<<20 })
	if e := r.Summary().Engine; e.PipeGrowths != 0 || e.MarksRaised != 0 {
		t.Errorf("%+v", e)
	}
}

// TestSummaryOfTheArena: the bytes that slow endpoints have not read are in the arena.
func TestSummaryOfTheArena(t *testing.T) {
	t.Parallel()

	r := forwarding(t, sockets.Server(t, sip), func(o *server.Options) { o.Engine = relay.EngineCopy })
	const loops = 2
	if a := r.Summary().Arena; a.Size != loops<<22 || a.Used < loops<<16 || a.Residues != 0 || a.Refused != 0 {
		t.Errorf("at the beginning: %+v", a)
	}
	pour(t, r, func(s admin.Summary) bool { return s.Arena.Residues > 0 && s.Arena.Peak > loops<<16 })
	if err := r.End(); err != nil {
		t.Error(err)
	}
	if a := r.Summary().Arena; a.Used != 0 || a.Residues == 0 {
		t.Errorf("after the end: %+v", a)
	}
}

// TestSummaryOfWaits: the waits of a loop are counted, with and without busy polling.
func TestSummaryOfWaits(t *testing.T) {
	t.Parallel()

	echo := sockets.Server(t, func(c net.Conn) { sockets.Echo(c) })
	r := forwarding(t, echo, func(o *server.Options) { o.Loops = 1 })
	echoes(t, client(t, r.At("l")), "hello")
	r.Until("the loop has slept", func() bool { return r.Summary().Loops[0].Blocked > 0 })
	if l := r.Summary().Loops[0]; l.Blocked > l.Turns || l.BusyPollHits != 0 || l.Gathers != 0 {
		t.Errorf("%+v", l)
	}
	busy := forwarding(t, echo, func(o *server.Options) { o.Loops, o.BusyPoll = 1, time.Second })
	c := client(t, busy.At("l"))
	// Bytes that are queued before the loop looks are no hit: on a busy machine that may be all
	// bytes.
	busy.Until("busy polling has a hit", func() bool {
		echoes(t, c, "hello")
		return busy.Summary().Loops[0].BusyPollHits > 0
	})
	if l := busy.Summary().Loops[0]; l.BusyPollHits > l.Turns {
		t.Errorf("with busy polling: %+v", l)
	}
}

// TestOpenChecksTheRelaysConfiguration: options that the relay rejects are an error before any
// socket listens.
func TestOpenChecksTheRelaysConfiguration(t *testing.T) {
	t.Parallel()

	r := forwarding(t, "127.0.0.1:1", nil)
	cfg := r.Load(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: ["127.0.0.1:1"], health_check: off}]`)
	for _, o := range []server.Options{{TailDelay: time.Minute}, {Gather: time.Minute}} {
		o.MaxConnections = 1
		if _, err := server.Open(context.Background(), cfg, o); !errors.Is(err, relay.ErrConfig) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestIdleSessionWithLimits: a session that rests under an idle timeout and a limit of its source's connections takes less
// than 400 bytes of the process, beside its share of the last slab and the last chunk of the loop's table.
func TestIdleSessionWithLimits(t *testing.T) {
	const first, n = 1000, 2500
	up, at := queue(t, n)
	defer syscall.Close(up)
	r := startWith(t, 2*n, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {idle: 1h}, limits: {connections: 100000, per_source: 100000}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, at))
	to := netip.MustParseAddrPort(r.At("l"))
	clients := make([]int, 0, first+n)
	defer func() {
		for _, fd := range clients {
			syscall.Close(fd)
		}
	}()
	joined := func(n int64) {
		r.Until("all are joined", func() bool {
			return r.Status().Upstreams[0].Endpoints[0].Active == n
		})
	}
	join := func(n int) {
		for i := range n {
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			must(t, err)
			if clients = append(clients, fd); i%50 == 0 { // few are on the way at once, for memory of those is kept
				joined(int64(len(clients) - 1))
			}
			must(t, syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}))
		}
	}
	join(first)
	joined(first)
	before := heap.InUse()
	join(n)
	joined(first + n)
	each := (heap.InUse() - before) / n
	t.Logf("%d bytes for each of %d", each, n)
	if most := 400 + share/n; each > most {
		t.Errorf("%d bytes for each session, want at most %d", each, most)
	}
}

// share is the size of a slab and a chunk of two loops.
const share = 2 * (64<<10 + 48<<10)

// queue is a listening socket that takes n connections which nothing accepts, so that they cost the process nothing.
func queue(t *testing.T, n int) (fd int, at string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = syscall.Listen(fd, 2*n)
	}
	must(t, err)
	name, err := sys.LocalName(fd)
	must(t, err)
	return fd, name.AddrPort.String()
}
