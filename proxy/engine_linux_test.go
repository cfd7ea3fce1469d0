package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/relay"
)

// drain reads all.
func drain(conn net.Conn) { io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}) }

// sip reads all, a little at a time, so that it is behind.
func sip(conn net.Conn) {
	io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 2048))
}

// pour writes until what is so, a minute at most.
func pour(t *testing.T, r *running, what func(proxy.Summary) bool) {
	t.Helper()
	conn, piece := r.dial(t), make([]byte, 1<<20)
	for !what(r.Summary()) {
		if _, err := conn.Write(piece); err != nil {
			t.Fatalf("it does not come about: %v, %+v", err, r.Summary())
		}
	}
	conn.Close()
	waitInactive(r)
}

// The summary says what the engine chose.
func TestSummaryHasTheEnginesChoices(t *testing.T) { eachDriver(t, testSummaryHasTheEnginesChoices) }

func testSummaryHasTheEnginesChoices(t *testing.T) {
	pipequota.Share(t)
	r := serve(t, proxy.Config{}, endpoint(t, "127.0.0.1:0", drain))
	if s := r.Summary(); s.Engine != (proxy.Engine{}) {
		t.Errorf("at the beginning: %+v", s.Engine)
	}
	onLoops := loopsOf(t) > 0
	pour(t, r, func(s proxy.Summary) bool {
		e := s.Engine
		return e.Promotions > 0 && e.PipeGrowths > 0 && (e.TurnsCut > 0 || !onLoops)
	})
	before := r.Summary()
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if s := r.Summary(); s.Engine != before.Engine {
		t.Errorf("after the end: %+v, want %+v", s.Engine, before.Engine)
	}
}

// Pipes that must not grow do not.
func TestMaxPipeSize(t *testing.T) {
	pipequota.Share(t)
	r := serve(t, proxy.Config{MaxPipeSize: 64 << 10, TailDelay: -1, Gather: -1}, endpoint(t, "127.0.0.1:0", drain))
	pour(t, r, func(s proxy.Summary) bool { return s.Bytes.ClientToEndpoint.Spliced > 32<<20 })
	if e := r.Summary().Engine; e.PipeGrowths != 0 || e.MarksRaised != 0 {
		t.Errorf("%+v", e)
	}
}

// What slow destinations leave behind is in the arena, which only loops have.
func TestSummaryHasTheArena(t *testing.T) { eachDriver(t, testSummaryHasTheArena) }

func testSummaryHasTheArena(t *testing.T) {
	r := serve(t, proxy.Config{Engine: relay.EngineCopy}, endpoint(t, "127.0.0.1:0", sip))
	loops := int64(loopsOf(t))
	s := r.Summary()
	if loops < 0 {
		if s.Arena != nil {
			t.Errorf("goroutines have an arena: %+v", s.Arena)
		}
		return
	}
	if s.Arena.Size != loops<<22 || s.Arena.Used < loops<<16 || s.Arena.Residues != 0 || s.Arena.Refused != 0 {
		t.Errorf("at the beginning: %+v", s.Arena)
	}
	pour(t, r, func(s proxy.Summary) bool { return s.Arena.Residues > 0 && s.Arena.Peak > loops<<16 })
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if s := r.Summary(); s.Arena.Used != 0 || s.Arena.Residues == 0 {
		t.Errorf("after the end: %+v", s.Arena)
	}
}

// The summary says how a loop waited.
func TestSummaryHasTheLoopsWaits(t *testing.T) {
	r := serve(t, proxy.Config{Loops: 1}, endpoint(t, "127.0.0.1:0", echo))
	exchange(t, r.dial(t), "hello")
	for end := time.Now().Add(time.Minute); r.Summary().Loops[0].Blocked == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // asking keeps the loop from it
	}
	if l := r.Summary().Loops[0]; l.Blocked == 0 || l.Blocked > l.Turns || l.BusyPollHits != 0 || l.Gathers != 0 {
		t.Errorf("%+v", l)
	}
	busy := serve(t, proxy.Config{Loops: 1, BusyPoll: time.Second}, endpoint(t, "127.0.0.1:0", echo))
	conn := busy.dial(t)
	// What is there already when the loop looks is no hit: on a busy machine all may be.
	for end := time.Now().Add(time.Minute); busy.Summary().Loops[0].BusyPollHits == 0 && time.Now().Before(end); {
		exchange(t, conn, "hello")
	}
	if l := busy.Summary().Loops[0]; l.BusyPollHits == 0 || l.BusyPollHits > l.Turns {
		t.Errorf("with busy polling: %+v", l)
	}
}

// A loop that carries much bulk lets it gather. What comes in one round it moves in one
// turn, be the machine as busy as it may: a turn that is late leaves nothing behind.
func TestSummaryHasGathers(t *testing.T) {
	pipequota.Share(t)
	r := serve(t, proxy.Config{Loops: 1}, endpoint(t, "127.0.0.1:0", drain))
	const clients = 12
	conns, piece := make([]net.Conn, clients), make([]byte, 32<<10)
	for i := range conns {
		conns[i] = r.dial(t)
	}
	for end := time.Now().Add(time.Minute); r.Summary().Loops[0].Gathers == 0 && time.Now().Before(end); {
		for range 10 { // asking is something else to do for the loop
			for _, conn := range conns {
				if _, err := conn.Write(piece); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Millisecond)
		}
	}
	if r.Summary().Loops[0].Gathers == 0 {
		t.Error("it never did")
	}
}

// Loops that serve several clients take SCHED_BATCH, unless they are told to keep the
// policy, and the summary says so.
func TestSummaryHasBatches(t *testing.T) {
	rigs := map[bool]*running{}
	ended, enough := make(chan error), make(chan struct{})
	const clients = 4
	for _, keep := range []bool{false, true} {
		rigs[keep] = serve(t, proxy.Config{Loops: 1, KeepPolicy: keep}, endpoint(t, "127.0.0.1:0", echo))
		for range clients {
			conn := rigs[keep].dial(t)
			go func() {
				for {
					select {
					case <-enough:
						ended <- conn.Close()
						return
					default:
						if err := roundTrip(conn, "hello"); err != nil {
							ended <- err
							return
						}
					}
				}
			}()
		}
	}
	batches := func(keep bool) int64 { return rigs[keep].Summary().Loops[0].Batches }
	for end := time.Now().Add(time.Minute); batches(false) == 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	close(enough)
	for range 2 * clients {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if batches(false) == 0 || batches(true) != 0 || rigs[true].Summary().Loops[0].BatchRefused != 0 {
		t.Errorf("%+v, and where the policy is kept %+v", rigs[false].Summary().Loops, rigs[true].Summary().Loops)
	}
}

// Targets are reached from the address that was asked for.
func TestSource(t *testing.T) { eachDriver(t, testSource) }

func testSource(t *testing.T) {
	from := make(chan net.Addr, 1)
	r := serve(t, proxy.Config{Source: netip.MustParseAddr("127.0.0.2")}, endpoint(t, "127.0.0.1:0", func(c net.Conn) {
		from <- c.RemoteAddr()
		echo(c)
	}))
	exchange(t, r.dial(t), "hello")
	if got := (<-from).(*net.TCPAddr).IP.String(); got != "127.0.0.2" {
		t.Errorf("the target is reached from %s", got)
	}
}

// What the relay does not take is an error before anybody is served.
func TestOpenChecksTheRelaysConfiguration(t *testing.T) {
	for _, cfg := range []proxy.Config{{TailDelay: time.Minute}, {Gather: time.Minute}} {
		cfg.Listen, cfg.MaxConnections = []socket.Address{parse(t, "127.0.0.1:0")}, 1
		cfg.To = []socket.Address{parse(t, "127.0.0.1:1")}
		if _, err := proxy.Open(context.Background(), &cfg); !errors.Is(err, relay.ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
