package dispatch

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/header"
	"github.com/penstock/penstock/proxy/hello"
	"github.com/penstock/penstock/proxy/limit"
	"github.com/penstock/penstock/proxy/source"
	"github.com/penstock/penstock/proxy/terminate"
)

// A Door is what is counted of those who come in at a listener, for as long as a file
// names it: limits that are changed by a reload go on from what there is.
type Door struct {
	// Name is its listener's. It is not changed.
	Name string

	Connections limit.Connections
	Rate        limit.Rate
	// Paused is told each time that accepting pauses at a limit, by its key, and when by the
	// loops' clock. It is called by loops, several at a time, and must not wait; nil: nobody
	// is. It is set before there are clients.
	Paused func(limit string, now time.Duration)

	current  atomic.Pointer[Listener] // the generation in force; nil: none is
	queue    queue                    // of clients beyond Connections that two loops have accepted at once
	accepted atomic.Int64
	meter    meter
	pauses   pauses
	refused  [doorRefusals]atomic.Int64
	tickets  sync.Pool
}

// A doorRefusal is a reason to refuse a client of a listener.
type doorRefusal uint8

const (
	refusedAddress doorRefusal = iota
	refusedNoSource
	refusedSourceConnections
	refusedSourceRate
	refusedSources
	refusedHeader
	refusedHello
	refusedPreread
	refusedRoute
	refusedUpstream
	refusedTLS
	refusedOther
	doorRefusals
)

func (r doorRefusal) String() string {
	return [...]string{
		"address", "no_source", "per_source", "per_source_per_second", "sources", "proxy_header", "hello", "preread", "no_route",
		"upstream", "tls", "other",
	}[r]
}

var doorCauses = []struct {
	cause error
	as    doorRefusal
}{
	{limit.ErrDenied, refusedAddress},
	{source.ErrUnknown, refusedNoSource},
	{limit.ErrSourceConnections, refusedSourceConnections},
	{limit.ErrSourceRate, refusedSourceRate},
	{limit.ErrSources, refusedSources},
	{core.ErrHeaderTimeout, refusedHeader},
	{header.ErrMissing, refusedHeader},
	{header.ErrUnexpected, refusedHeader},
	{header.ErrVersion, refusedHeader},
	{header.ErrTooLong, refusedHeader},
	{header.ErrMalformed, refusedHeader},
	{header.ErrChecksum, refusedHeader},
	{hello.ErrNotTLS, refusedHello},
	{hello.ErrTooLong, refusedHello},
	{hello.ErrMalformed, refusedHello},
	{core.ErrPrereadTimeout, refusedPreread},
	{core.ErrPrereadEnded, refusedPreread},
	{ErrNoRoute, refusedRoute},
	{ErrLoop, refusedRoute},
	{terminate.ErrSessions, refusedTLS},
}

// Refused counts a client that was refused, by reason.
func (d *Door) Refused(cause error) {
	as := refusedOther
	switch {
	case errors.As(cause, new(*UpstreamError)):
		as = refusedUpstream
	case errors.As(cause, new(*terminate.Error)):
		as = refusedTLS
	}
	for _, c := range doorCauses {
		if errors.Is(cause, c.cause) {
			as = c.as
			break
		}
	}
	d.refused[as].Add(1)
}

// DoorCounts are what has happened at a listener.
type DoorCounts struct {
	Accepted, Active int64
	Refused          map[string]int64 // by reason
}

// Counts returns the counts until now.
func (d *Door) Counts() DoorCounts {
	return DoorCounts{
		Accepted: d.accepted.Load(), Active: d.Connections.InUse(),
		Refused: byName(d.refused[:], func(i int) string { return doorRefusal(i).String() }),
	}
}

// A ticket is what a client has taken at the door beside a place under Connections.
type ticket struct {
	sources *limit.Sources // of entry; nil: none
	entry   limit.Entry
	over    bool // it has no such place yet
}

func (d *Door) newTicket() *ticket {
	if t, _ := d.tickets.Get().(*ticket); t != nil {
		return t
	}
	return new(ticket)
}

// An admission is the [core.Admitter] of one generation of a listener.
type admission Listener

// RoomIn implements [core.RoomTimer].
func (a *admission) RoomIn(now int64) time.Duration {
	if a.door.Connections.Full() {
		return 0
	}
	in := a.door.Rate.Until(now)
	if a.cfg.Process != nil {
		in = max(in, a.cfg.Process.Until(now))
	}
	return in
}

// Admit implements [core.Admitter]. Whom its source refuses costs others nothing: that is
// looked at before anything is counted, or given back when it is known, by AdmitSource. Two
// loops may both have found room for one client more: the second one then waits for a place
// before anything is done for it.
func (a *admission) Admit(c *core.Client, identified bool, now int64) error {
	d := a.door
	d.accepted.Add(1)
	if identified {
		if !c.Source().Known() {
			return source.ErrUnknown
		}
		if err := a.source(c, now); err != nil {
			return err
		}
	}
	d.Rate.Spend(now)
	if a.cfg.Process != nil {
		a.cfg.Process.Spend(now)
	}
	if !d.Connections.Take() {
		a.ticketOf(c).over = true
	}
	return nil
}

// AdmitSource implements [core.Admitter].
func (a *admission) AdmitSource(c *core.Client, now int64) error {
	err := a.source(c, now)
	if err == nil {
		return nil
	}
	a.door.Rate.GiveBack(now)
	if a.cfg.Process != nil {
		a.cfg.Process.GiveBack(now)
	}
	if a.door.pauses.at.Load() != 0 {
		a.cfg.Nudge()
	}
	return err
}

// source takes what the rules for a client's source and the limits of each one ask for, or
// says why it may not come.
func (a *admission) source(c *core.Client, now int64) error {
	under := (*Listener)(a)
	in := under.inForce(c) // another one if there was a reload since the client was accepted
	if in != under {
		if err := in.takes(c); err != nil {
			return err
		}
	}
	if err := in.allows(c); err != nil {
		return err
	}
	if a.cfg.Sources == nil {
		return nil
	}
	entry, err := a.cfg.Sources.Admit(c.Source(), now)
	if err != nil {
		return err
	}
	t := a.ticketOf(c)
	t.sources, t.entry = a.cfg.Sources, entry
	return nil
}

// ticketOf returns a client's ticket, which it has from now on.
func (a *admission) ticketOf(c *core.Client) *ticket {
	t, _ := c.Ticket.(*ticket)
	if t == nil {
		t = a.door.newTicket()
		c.Ticket = t
	}
	return t
}

// Left implements [core.Admitter].
func (a *admission) Left(of any) {
	d := a.door
	over := false
	if t, _ := of.(*ticket); t != nil {
		over = t.over
		if t.sources != nil {
			t.sources.Leave(t.entry)
		}
		*t = ticket{}
		d.tickets.Put(t)
	}
	if over {
		return
	}
	if d.Connections.Give() {
		d.queue.next()
		a.cfg.Nudge()
	}
}
