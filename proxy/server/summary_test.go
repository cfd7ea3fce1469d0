package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
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
	must(t, r.End())
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
	if a := r.Summary().Arena; a.Budget != loops<<22 || a.Used < loops<<16 || a.Residues != 0 || a.HeapResidues != 0 {
		t.Errorf("at the beginning: %+v", a)
	}
	pour(t, r, func(s admin.Summary) bool { return s.Arena.Residues > 0 && s.Arena.Peak > loops<<16 })
	must(t, r.End())
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

// TestSummaryOfRefusals: the summary and the metrics of the process count a refusal under the word of its listener, whether TLS
// ends there or not, and also when the listener is gone.
func TestSummaryOfRefusals(t *testing.T) {
	t.Parallel()
	cert, key := certificate.New(t, "front.test")
	const text = `
listeners:
  - {name: ends, bind: "127.0.0.1:0", upstream: none, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
  - {name: routes, bind: "127.0.0.1:0", routes: [{match: {sni: [a.test]}, upstream: none}]}
  - {name: denies, bind: "127.0.0.1:0", upstream: none, deny: [all]}
  - {name: passes, bind: "127.0.0.1:0", upstream: none}
upstreams: [{name: none, endpoints: ["127.0.0.1:1"], health_check: off, queue: {hold: 0s}}]`
	r := start(t, text, "c.pem", cert, "k.pem", key)
	for _, x := range []struct{ listener, say, reason string }{
		{"ends", "", "upstream"}, {"ends", "no TLS\n", "tls"}, {"routes", "no TLS\n", "no_route"}, {"denies", "", "address"}, {"passes", "", "upstream"},
	} {
		if c, err := net.Dial("tcp", r.At(x.listener)); err == nil { // else it was reset at once
			defer c.Close()
			if x.listener == "ends" && x.say == "" {
				_ = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake()
			}
			_, _ = io.WriteString(c, x.say)
		}
		r.Until("the refusal is counted as "+x.reason, func() bool { return r.Refused(x.listener, x.reason) == 1 })
	}
	r.Reload(strings.Replace(text, "  - {name: ends", "  # - {name: ends", 1))
	want := map[string]int64{"upstream": 2, "tls": 1, "no_route": 1, "address": 1}
	if s := r.Summary(); !maps.Equal(s.RefusedBy, want) || s.Connections.Refused != 5 {
		t.Errorf("%d were refused by %v, want %v", s.Connections.Refused, s.RefusedBy, want)
	}
	for _, n := range r.sampled().Process.Refusals {
		if n.N != want[n.Of] {
			t.Errorf("the metrics have %+v", n)
		}
	}
}
