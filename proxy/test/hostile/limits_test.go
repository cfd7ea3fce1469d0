package hostile_test

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
)

// TestFloodOfSources: each of hundreds of sources gets its limit, and no more. One source that
// connects again and again harms no other.
func TestFloodOfSources(t *testing.T) {
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, limits: {per_source: 2}}
  - {name: rate, bind: "127.0.0.1:0", upstream: u, limits: {per_source_per_second: 3}}
  - {name: wide, bind: "127.0.0.1:0", upstream: u, limits: {per_source: 5, source_prefix: [16, 64]}}
upstreams: [{name: u, endpoints: [%q]}]`, echo(t)))
	l, wide, rate := r.At("l"), r.At("wide"), r.At("rate")
	h := honestBy(t, func() error {
		d := net.Dialer{Timeout: condition.Patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 200, 0, 1)}}
		c, err := d.Dial("tcp", l)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := exchange(c, []byte("honest")); err != nil {
			return err
		}
		_ = c.(*net.TCPConn).CloseWrite() // so that the client has left when this returns
		_, err = io.Copy(io.Discard, c)
		return err
	})
	n := most(t, 400)
	var there []*net.TCPConn
	for i := range n {
		from := fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250)
		for range 2 {
			c := dialFrom(t, from, l)
			must(t, exchange(c, []byte("x")))
			there = append(there, c)
		}
		refusedFrom(t, from, l)
	}
	r.refused("l", map[string]int64{"per_source": int64(n)})
	const again = 300
	for i := range again { // a source that connects too fast, as one of a whole network
		refusedFrom(t, "127.1.0.1", l)
		from := fmt.Sprintf("127.2.%d.1", i%200)
		if i >= 5 {
			refusedFrom(t, from, wide)
			continue
		}
		c := dialFrom(t, from, wide)
		must(t, exchange(c, []byte("x")))
		there = append(there, c)
	}
	r.refused("l", map[string]int64{"per_source": int64(n) + again})
	r.refused("wide", map[string]int64{"per_source": again - 5})
	const fast = 30
	served := 0
	for range fast {
		c, err := tryFrom(t, "", rate)
		if err != nil {
			continue
		}
		there = append(there, c)
		if exchange(c, []byte("x")) == nil {
			served++
		}
	}
	if served < 3 || served > 10 {
		t.Errorf("%d of 30 connections of one source were served at 3 a second", served)
	}
	another := dialFrom(t, "127.3.0.1", rate)
	must(t, exchange(another, []byte("another source")))
	r.refused("rate", map[string]int64{"per_source_per_second": int64(fast - served)})
	h.Stop()
	closeAll(append(there, another))
	r.settled(2 * n)
	must(t, exchange(dialFrom(t, "127.1.0.1", l), []byte("again")))
}
