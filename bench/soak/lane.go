package soak

import (
	"fmt"
	"net"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/lane/lossy"
	"github.com/penstock/penstock/proxy/admin"
)

// linkRate is 1 % of all packets each. No sender repeats a reset that is lost.
var linkRate = lossy.Rate{Lose: 100, Twice: 100, Late: 100, SpareResets: true}

// Lane is the part of the sessions that have left user space.
type Lane struct {
	Connections int64        `json:"connections"` // by the listener whose sessions may leave
	Left        int64        `json:"left"`        // how often one of these has left
	Returned    int64        `json:"returned"`    // and has come back
	Bytes       int64        `json:"bytes"`       // that those have carried there, both ways
	BytesAll    int64        `json:"bytes_all"`   // of both listeners
	Link        lossy.Counts `json:"link"`        // packets of the loopback
}

// link is the loopback of this network namespace, once it is lossy.
type link struct {
	of *lossy.Link // owned; nil: it is not
}

func (l *link) open() error {
	d, err := net.InterfaceByName("lo")
	if err == nil {
		l.of, err = lossy.Attach(d.Index, linkRate)
	}
	return err
}

func (l *link) close() { _ = l.of.Close() }

// leaves reports whether a connection is made to the listener whose sessions leave user space: every second one is.
func (s *soak) leaves(i id) bool { return s.Lane && i.n&2 == 0 } // the last bit is the ends' own, see sendEnd

// probes is how many seconds are between keepalive probes of all ends. An endpoint that lacks the bytes before a reset takes
// the reset for none of its connection's (RFC 5961), and challenges it once: if that is lost, too, it learns of the
// reset by a probe or never. Without a lane the loopback loses nothing.
func (s *soak) probes() int {
	if s.Lane {
		return 1
	}
	return 0
}

// address is the one that a connection is made to.
func (s *soak) address(i id) string {
	if !s.Lane || s.leaves(i) {
		return s.proxy.Address
	}
	return s.stays
}

// bothListen finds the addresses of both listeners.
func (s *soak) bothListen(a *contestant.Account) error {
	if len(a.Listeners) != 2 {
		return fmt.Errorf("soak: the proxy listens at %q, not at two addresses", a.Listeners)
	}
	s.proxy.Address, s.stays = a.Listeners[0], a.Listeners[1]
	return nil
}

// laneComplaints returns the faults in a lane without connections.
func (s *soak) laneComplaints(l *admin.Lane) (all []string) {
	if l == nil {
		return []string{"summary: expected a lane, got none"}
	}
	if l.Active != 0 || l.Failed != 0 {
		all = append(all, fmt.Sprintf("summary: lane: expected no session, and all closed in silence, got %d sessions, and %d sockets that were not", l.Active, l.Failed))
	}
	if len(l.Unrestored) != 0 {
		all = append(all, fmt.Sprintf("summary: lane: expected all sessions to come back that were to, got %v", l.Unrestored))
	}
	if n := s.tally.done[throughLane].Load(); n >= manyThroughLane && l.Left == 0 {
		all = append(all, fmt.Sprintf("summary: lane: expected sessions to leave user space, none of %d has", n))
	}
	return all
}

// manyThroughLane are so many connections that one of them at least lasts for long enough to leave.
const manyThroughLane = 200

// laneReport returns the part of the lane; nil: there is none.
func (s *soak) laneReport() *Lane {
	l := &s.ledger
	if !s.Lane || l.first.Account == nil || l.last.Summary.Lane == nil {
		return nil
	}
	first, last := l.first, l.last
	r := &Lane{
		Connections: s.tally.done[throughLane].Load(), Left: last.Summary.Lane.Left, Returned: last.Summary.Lane.Returned, Bytes: last.Account.Lane - first.Account.Lane,
		BytesAll: last.ClientToEndpoint + last.EndpointToClient - first.ClientToEndpoint - first.EndpointToClient,
	}
	if s.link.of != nil {
		r.Link, _ = s.link.of.Counts() // maps of this process's own
	}
	return r
}
