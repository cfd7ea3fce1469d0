package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

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

// A loop that carries much bulk lets it gather.
func TestSummaryHasGathers(t *testing.T) {
	r := serve(t, proxy.Config{Loops: 1}, endpoint(t, "127.0.0.1:0", drain))
	const clients = 12
	ended, enough := make(chan error, clients), make(chan struct{})
	for range clients {
		conn := r.dial(t)
		go func() {
			piece := make([]byte, 256<<10)
			for {
				select {
				case <-enough:
					ended <- conn.Close()
					return
				default:
				}
				if _, err := conn.Write(piece); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	for end := time.Now().Add(time.Minute); r.Summary().Loops[0].Gathers == 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // asking is something else to do for the loop
	}
	close(enough)
	for range clients {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if r.Summary().Loops[0].Gathers == 0 {
		t.Error("it never did")
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
