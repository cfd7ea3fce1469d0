package hostile_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
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
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 200, 0, 1)}}
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

// TestFullQueue: of a flood, as many clients wait as allowed, and the others are refused at once.
// The waiting clients are served when there is room. Those that have given up free
// their places.
func TestFullQueue(t *testing.T) {
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, endpoints: [{address: %[1]q, connections: 10}], queue: {size: 50, timeout: 15s}}
  - {name: v, endpoints: [%[1]q]}`, echo(t)))
	h := serveHonest(t, r.At("m"), []byte("honest"))
	holders := crowd(t, 10, r.At("l"))
	for _, c := range holders {
		must(t, exchange(c, []byte("x")))
	}
	waiting := func() int64 { return r.Status().Upstreams[0].Pending }
	var flood []*net.TCPConn
	l := r.At("l")
	for range 500 {
		if c, err := tryFrom(t, "", l); err == nil { // the other clients were reset already
			flood = append(flood, c)
		}
	}
	r.refused("l", map[string]int64{"upstream": 450})
	if n := waiting(); n != 50 {
		t.Errorf("%d clients wait, want 50", n)
	}
	var queued []*net.TCPConn
	for _, c := range flood {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			queued = append(queued, c)
		}
	}
	closeAll(queued[:25])
	r.Until("half of the clients have given up", func() bool { return waiting() == 25 })
	closeAll(holders)
	var served sync.WaitGroup
	for _, c := range queued[25:] {
		served.Go(func() {
			_ = c.SetDeadline(time.Now().Add(patience))
			if err := exchange(c, []byte("x")); err != nil {
				t.Error(err)
			}
			c.Close()
		})
	}
	served.Wait()
	if n := waiting(); n != 0 {
		t.Errorf("%d clients wait at the end", n)
	}
	h.Stop()
	closeAll(flood)
	r.settled(500)
}

// TestConnectionLimit: at the limit of the process no client is served beyond it: others wait to be
// accepted. They are served as soon as the idle clients that took the places have left.
func TestConnectionLimit(t *testing.T) {
	hello := helloOf(t, "a.test")
	r := start(t, "limits: {connections: 100}\n"+fmt.Sprintf(looking, echo(t), "1s"))
	flood := crowd(t, 400, r.At("hello")) // all of them stay silent
	r.Until("the limit is reached", func() bool { return r.Summary().Connections.Active >= 100 })
	before, began := r.turns(), time.Now()
	honest := crowd(t, 20, r.At("header"))
	var served sync.WaitGroup
	for _, c := range honest {
		served.Go(func() {
			if _, err := c.Write(header1); err != nil {
				t.Error(err)
			}
			if err := exchange(c, []byte("honest")); err != nil {
				t.Error(err)
			}
		})
	}
	served.Wait()
	// Four times a hundred clients time out first, or fewer, if the loops take turns.
	if took := time.Since(began); took > 10*5*time.Second {
		t.Errorf("serving took %v", took)
	}
	t.Logf("the honest clients were served after %v, %d turns", time.Since(began), r.turns()-before)
	if n := r.turns() - before; n > 40_000 {
		t.Errorf("%d turns", n)
	}
	if active := r.Summary().Connections.Active; active > 102 {
		t.Errorf("%d clients are served at once", active)
	}
	closeAll(flood)
	closeAll(honest)
	h := serveHonest(t, r.At("hello"), hello)
	time.Sleep(50 * time.Millisecond) // some clients connect in this time
	h.Stop()
	r.settled(400)
}
