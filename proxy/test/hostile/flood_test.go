package hostile_test

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestFloodOfHellos: clients by the hundred, or 5,000 with PENSTOCK_DEEP=1, whose hellos of 60 KiB drip and do not end, take no more memory than there
// is for all of them together: others are refused. (Of a unix socket all bytes are taken, of TCP those of clients that drip for long.) Meanwhile clients with ordinary hellos are served.
func TestFloodOfHellos(t *testing.T) {
	n, room := 1600, int64(64<<20)
	if os.Getenv("PENSTOCK_DEEP") != "" {
		n = 5000
	}
	n = most(t, n)
	s := startServing(t, fmt.Sprintf(`
listeners:
- {name: tls, bind: "127.0.0.1:0", timeouts: {preread: 1h}, routes: [{match: {sni: ["*.test"]}, upstream: u}], upstream: u}
- {name: unix, bind: "unix:%s/tls", timeouts: {preread: 1h}, routes: [{match: {sni: ["*.test"]}, upstream: u}], upstream: u}
upstreams: [{name: u, endpoints: [%q], health_check: off}]
`, sockets.Dir(t), echo(t)))
	long := helloOf(t, "a.test", slices.Repeat([]string{strings.Repeat("p", 250)}, 244)...)
	usual := helloOf(t, "a.test")
	before := s.footprint()
	clients := append(s.crowd(habit{listener: "tls"}, n/4), s.crowd(habit{listener: "unix"}, n-n/4)...)
	began := time.Now()
	for _, piece := range append(drip(long[:3000], 20), slices.Collect(slices.Chunk(long[3000:len(long)-1], 10_000))...) {
		for _, c := range clients {
			_ = c.SetWriteDeadline(time.Now().Add(condition.Patience))
			_, _ = c.Write(piece) // it may be refused
		}
	}
	sent := time.Since(began)
	h := serveHonest(t, s.at["tls"], usual)
	time.Sleep(300 * time.Millisecond) // some clients connect in this time
	most := room + fixed + int64(n)*ofAny
	during := s.footprint()
	for end := time.Now().Add(condition.Patience); (during.Active == int64(n) || during.used()-before.used() > most) && time.Now().Before(end); during = s.footprint() {
		time.Sleep(50 * time.Millisecond) // until all that was sent is read, and the memory of the refused given back
	}
	served := h.Stop()
	used := during.used() - before.used()
	t.Logf("%d clients with %d bytes each, sent within %v: %d stay, %d MiB in use, %d MiB resident; %d ordinary clients were served, the slowest in %v",
		n, len(long), sent.Round(time.Millisecond), during.Active, used>>20, during.Resident>>20, served, h.worst.Round(time.Microsecond))
	if during.Active == int64(n) {
		t.Error("nobody is refused")
	}
	if used > most {
		t.Errorf("%d bytes are in use, want %d at most", used, most)
	}
	for _, c := range clients {
		if c, ok := c.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
		c.Close()
	}
	s.steady(0)
}

// TestOneSourceFillsNoQueue: one source fills the queue of an upstream, without an endpoint that serves or without room, and comes
// again and again. Clients of other sources wait beside it, and are served when they can be.
func TestOneSourceFillsNoQueue(t *testing.T) {
	t.Parallel()

	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprintf("full %v", full), func(t *testing.T) {
			t.Parallel()
			address := "127.0.0.1:" + sockets.Port(t)
			serve := func() {
				ln, err := net.Listen("tcp", address)
				must(t, err)
				sockets.Serve(t, ln, sockets.Echo)
			}
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, connections: 1}], health_check: off, queue: {size: 8, hold: 1m, timeout: 1m}}]`, address))
			var first *net.TCPConn
			came, waiting, trying := int64(0), int64(8), int64(1) // trying: one of them may be on its way to the endpoint, and another has its place
			if full {
				serve()
				first = dial(t, r.At("l"))
				must(t, exchange(first, []byte("first")))
				came, waiting, trying = 1, 9, 0
			}
			var list []*net.TCPConn
			come := func(from string) {
				c, err := tryFrom(t, from, r.At("l"))
				if came++; err == nil {
					list = append(list, c)
				}
			}
			flood := func() {
				for range 20 {
					come("127.0.0.2")
				}
				r.Until("the queue is full", func() bool {
					c := r.Status().Connections
					return c.Accepted == came && c.Active >= waiting && c.Active <= waiting+trying
				})
			}
			flood()
			flooding := list
			list = nil
			for i := range 4 {
				come(fmt.Sprintf("127.0.0.%d", 3+i))
			}
			others := list
			flood()
			closeAll(append(flooding, list[len(others):]...))
			if full {
				first.Close()
			} else {
				serve()
			}
			served := 0
			for _, c := range others {
				if exchange(c, []byte("hello")) == nil {
					served++
				}
				c.Close()
			}
			if served != 4 {
				t.Errorf("%d of 4 clients of other sources are served", served)
			}
		})
	}
}
