package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Flow is bytes of one direction.
type Flow struct {
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
}

func (f *Flow) add(o Flow) {
	f.Sent += o.Sent
	f.Received += o.Received
}

// flows are those of both directions: from the client and from the server.
type flows [2]Flow

func (f *flows) add(o flows) {
	f[client].add(o[client])
	f[server].add(o[server])
}

// round is some time of connections that come and go, between two moments at
// which there is none.
type round struct {
	s     *soak
	n     uint32
	until time.Time
	next  atomic.Uint32

	mu    sync.Mutex
	pairs map[id]*pair // not judged yet
	// exact are bytes of connections on which all must arrive, torn of the others.
	exact, torn flows
	// ended and reset are connections that have come to the origin with no or not
	// all of their number, by how they ended; silent are the clients that ended so.
	ended, reset, silent int64
}

func (s *soak) newRound(n uint32, until time.Time) *round {
	r := &round{s: s, n: n, until: until, pairs: make(map[id]*pair)}
	s.round.Store(r)
	return r
}

// connect makes connections, one after the other, until the time is over.
func (r *round) connect(ctx context.Context) {
	for ctx.Err() == nil && time.Now().Before(r.until) && !r.s.enough() {
		i := id{r.n, r.next.Add(1)}
		c := newPair(draw(r.s.Seed, i, r.s.Longest, r.s.Messages > 0), &r.s.tally, r.s.Patience)
		if err := r.one(ctx, c); err != nil && ctx.Err() == nil {
			r.s.violate(fmt.Sprintf("connection %v: client: expected to be connected, got %v", i, err))
		}
	}
}

// one is a connection from its beginning until both ends are over.
func (r *round) one(ctx context.Context, c *pair) error {
	o := c.plan.parts[client].socket
	o.probes = r.s.probes()
	r.with(func() { r.pairs[c.plan.id] = c })
	r.s.tally.dialed.Add(1)
	conn, err := o.dial(ctx, r.s.address(c.plan.id), r.s.Patience)
	if err != nil {
		r.with(func() { delete(r.pairs, c.plan.id) })
		return err
	}
	r.s.opened(c.plan)
	if r.s.leaves(c.plan.id) {
		r.s.tally.count(throughLane)
	}
	if c.serve(ctx, client, conn) {
		r.judge(c)
	}
	c.mu.Lock()
	wait := c.attached || c.plan.exact() && !c.plan.silent
	c.mu.Unlock()
	if !wait {
		return nil // the server may have seen nothing of it
	}
	select {
	case <-c.done:
	case <-time.After(r.s.Patience):
	case <-ctx.Done():
	}
	return nil
}

// opened counts a connection.
func (s *soak) opened(p *plan) {
	s.tally.count(opened)
	if p.silent {
		s.tally.count(silentClients)
	}
	for _, part := range p.parts {
		if b := part.socket.sendBuffer; b > 0 && b < tiny {
			s.tally.count(tinyBuffers)
		}
	}
}

func (r *round) with(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// attach drives the server's end of a connection.
func (r *round) attach(ctx context.Context, i id, conn *net.TCPConn) {
	var c *pair
	r.with(func() { c = r.pairs[i] })
	if c == nil || c.plan.silent || !c.attach() {
		r.s.violate(fmt.Sprintf("server: expected a connection that is open, once, got number %v", i))
		return
	}
	o := c.plan.parts[server].socket
	e := c.ends[server]
	control(conn, func(fd int) { _ = o.apply(fd) })
	_ = conn.SetNoDelay(!o.nagle)
	c.mu.Lock()
	e.received = greeting
	c.mu.Unlock()
	if c.serve(ctx, server, conn) {
		r.judge(c)
	}
}

// stranger notes a connection that has not said its number.
func (r *round) stranger(n int, err error) {
	r.with(func() { r.torn[client].Received += int64(n) })
	switch {
	case errors.Is(err, io.EOF):
		r.with(func() { r.ended++ })
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.s.violate(fmt.Sprintf("server: expected the %d bytes of a number or a reset, got an end of file after %d", greeting, n))
	case errors.Is(err, syscall.ECONNRESET):
		r.with(func() { r.reset++ })
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.s.violate(fmt.Sprintf("server: expected something of a connection, got nothing for %v", r.s.Patience+r.s.Longest))
	default:
		r.s.violate(fmt.Sprintf("server: expected the number of a connection, got %v", err))
	}
}

// judge is called once for a connection that is over.
func (r *round) judge(c *pair) {
	faults, moved := c.faults(), c.flows()
	r.s.tally.done[arrivals].Add(c.arrivals())
	r.with(func() {
		delete(r.pairs, c.plan.id)
		switch {
		case c.plan.silent:
			if c.ends[client].part.end.how != reset {
				r.silent++
			}
		case c.plan.exact():
			r.exact.add(moved)
		default:
			r.torn.add(moved)
		}
	})
	if len(faults) > 0 {
		r.s.violate(fmt.Sprintf("connection %v: %s (%v)", c.plan.id, strings.Join(faults, "; "), c.plan))
	}
}

// flows returns the bytes of a connection in both directions.
func (c *pair) flows() (f flows) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, e := range c.ends {
		f[r] = Flow{Sent: e.sent, Received: c.ends[role(r).other()].received}
	}
	return f
}

// arrivals is how many sends of both ends have come whole.
func (c *pair) arrivals() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, e := range c.ends {
		n += e.part.arrived(c.ends[role(r).other()].received - e.greeted())
	}
	return n
}

// finish judges the connections that never reached the server, once none can any more.
func (r *round) finish() {
	var rest []*pair
	r.with(func() {
		for _, c := range r.pairs {
			rest = append(rest, c)
		}
	})
	for _, c := range rest {
		r.judge(c)
	}
}
