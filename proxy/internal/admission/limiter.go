// Package admission decides which clients of an HTTP address (of the admin API or of the metrics) are served when
// there are more than it has places for. A client never keeps out a client with more rights, and a client that sends
// nothing or reads nothing keeps no other client out.
//
// There are three bounds. Connections: the last place is kept free, by closing the connection that has waited longest
// for its client or, with TLS, a connection of a network that floods, see [idle]. Requests: fewer than connections,
// so that every client can ask; clients with fewer rights have a lower bound. Requests of one [Kind]: each lasts long
// or needs much memory. At a bound, a request takes the place of a lasting request with fewer rights, or is refused.
// A request that is never begun, such as a probe, counts only as a connection.
package admission

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/internal/listener"
)

// A Rank says how many rights a client has. Greater ranks are served first.
type Rank int

// Ranks.
const (
	Nobody  Rank = iota // may only ask for probes
	Reads               // may read
	Changes             // may change
	Own                 // root, or the user of this process
)

// A Kind is the kind of a request.
type Kind int

// Kinds of requests. Short is for all requests that end soon by themselves.
const (
	Short   Kind = iota
	Look         // waits between two looks
	Stream       // lasts as long as its client wants
	Profile      // only one at a time
	Answer       // holds a long answer in memory until its client has read it
	Scrape       // holds all metrics in memory until its client has read them
	kinds
)

// bounds are the bounds of each kind: how many requests run at once, and how long another one waits for a place.
var bounds = [kinds]struct {
	most int
	wait time.Duration
	full string
}{
	Look:    {16, 0, "the limit of waiting requests is reached"},
	Stream:  {16, 0, "the limit of event streams is reached: close a page, or try again later"},
	Profile: {1, 0, "another profile is being taken"},
	Answer:  {4, time.Hour, "the limit of long answers is reached"},
	Scrape:  {2, time.Second, "the limit of scrapes is reached"},
}

// lasts reports whether a request of this kind is ended when another one needs its place.
func (k Kind) lasts() bool { return k == Look || k == Stream || k == Profile }

var (
	// ErrBusy is wrapped by the error of a request for which there is no place now.
	ErrBusy = errors.New("try again in a second")
	// ErrDisplaced is the cause of a request's end if a client with more rights, or a shorter request, took its place.
	ErrDisplaced = fmt.Errorf("a later request displaced this request: %w", ErrBusy)
)

// A Limiter limits the clients of one [net/http.Server], and is the server's [net.Listener]. It is safe for concurrent
// use.
type Limiter struct {
	accepted  chan net.Conn
	closed    chan struct{}
	once      sync.Once
	limit     *listener.Limit
	most      int           // largest number of connections
	writeTime time.Duration // for an answer, from its beginning

	mu      sync.Mutex
	grace   time.Duration
	silent  time.Duration
	conns   []*Conn   // open connections; the first has waited longest for its client
	waiters []*waiter // in order of arrival
	idle    idle
	look    *time.Timer // calls makeRoom; nil until it is needed
	due     time.Time   // when look calls makeRoom, or has called it
}

// graceTime is the least time that a client has for the rest of its request, and again for reading the response. A client
// on this machine needs much less. silentTime is the time for the beginning of a request, which clients send as soon as
// they are connected. slowTime is how long the reading of an answer may take while another request waits for its place.
const (
	graceTime  = 250 * time.Millisecond
	silentTime = 5 * time.Millisecond
	slowTime   = 5 * time.Second
)

// New returns a limiter. most is the largest number of connections at a time, at least 8. A client has writeTime to read its answer.
func New(most int, writeTime time.Duration) *Limiter {
	return &Limiter{
		accepted: make(chan net.Conn), closed: make(chan struct{}), limit: listener.NewLimit(most), most: most, writeTime: writeTime,
		grace: graceTime, silent: silentTime,
	}
}

// Limit returns the limit for the listeners that accept the connections.
func (l *Limiter) Limit() *listener.Limit { return l.limit }

// requests returns the number of requests below which another request of a rank may begin. A quarter of the
// connections is left for clients that have not asked yet.
func (l *Limiter) requests(of Rank) int {
	return l.most * [...]int{Nobody: 0, Reads: 4, Changes: 5, Own: 6}[of] / 8
}

// Counts returns the number of connections, and how many of them have a request in progress.
func (l *Limiter) Counts() (conns, performed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns), l.count(func(c *Conn) bool { return c.busy })
}

// Held returns how many places of a kind are taken.
func (l *Limiter) Held(kind Kind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count(func(c *Conn) bool { return c.kind == kind })
}

// Accept returns the next connection passed to [Limiter.Put].
func (l *Limiter) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close stops accepting.
func (l *Limiter) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *Limiter) Addr() net.Addr { return &net.UnixAddr{Name: "http", Net: "unix"} }

// makeRoom closes a connection if all places are taken, and a connection with an answer that is read slowly if
// another request waits for its place. It does so at once, or when the client's grace time is over.
func (l *Limiter) makeRoom() {
	l.mu.Lock()
	var leave []*Conn
	if len(l.conns) >= l.most {
		leave = append(leave, l.surplus())
	}
	for kind := range kinds {
		if slices.ContainsFunc(l.waiters, func(w *waiter) bool { return w.kind == kind }) {
			leave = append(leave, l.evict(func(c *Conn) bool { return c.kind == kind && !c.busy }, func(c *Conn) time.Duration {
				return min(l.grace-time.Since(c.moved), slowTime-time.Since(c.since))
			}))
		}
	}
	l.mu.Unlock()
	for _, c := range leave {
		if c != nil {
			c.Close()
		}
	}
}

// surplus removes the connection to close when all places are taken; nil: none yet. The caller holds mu.
func (l *Limiter) surplus() *Conn {
	silence := min(l.silent, l.grace)
	left := func(grace time.Duration) func(*Conn) time.Duration {
		return func(c *Conn) time.Duration { return grace - time.Since(c.since) }
	}
	c := l.flooding(silence)
	if c != nil {
		l.remove(c)
		return c
	}
	c = l.evict((*Conn).isSilent, left(silence))
	if c == nil && slices.ContainsFunc(l.conns, (*Conn).unclear) {
		l.lookIn(silence)
	}
	if c == nil {
		c = l.evict(func(c *Conn) bool { return c.queued }, left(0))
	}
	if c == nil {
		c = l.evict(func(c *Conn) bool { return !c.busy }, left(l.grace))
	}
	if c == nil { // what is left are requests that count only as connections
		c = l.evict(func(c *Conn) bool { return c.busy && !c.running }, left(l.grace))
	}
	return c
}

// evict removes the first connection of the least rank that match accepts. If its client has time left, makeRoom is called
// when this time is over. The caller holds mu, and closes the connection.
func (l *Limiter) evict(match func(*Conn) bool, left func(*Conn) time.Duration) *Conn {
	c := l.least(match)
	if c == nil {
		return nil
	}
	if left := left(c); left > 0 {
		l.lookIn(left)
		return nil
	}
	l.remove(c)
	return c
}

// lookIn has makeRoom called after a time, or earlier: each call finds out again what to wait for. There is only one
// timer: with a timer for each call, timers would multiply as long as all places are taken. The caller holds mu.
func (l *Limiter) lookIn(d time.Duration) {
	now := time.Now()
	at := now.Add(d)
	if now.Before(l.due) && !at.Before(l.due) {
		return
	}
	if l.look != nil {
		l.look.Stop()
	}
	l.look, l.due = time.AfterFunc(d, l.makeRoom), at
}

// remove removes a connection, unless it is removed already. The caller holds mu, and closes the connection.
func (l *Limiter) remove(c *Conn) {
	if c.gone {
		return
	}
	c.gone = true
	l.conns = slices.DeleteFunc(l.conns, func(other *Conn) bool { return other == c })
	if c.from.IsValid() && !c.begun {
		l.idle.note(c.from)
	}
}

// least returns the first connection of the least rank that match accepts; nil: there is none. The caller holds mu.
func (l *Limiter) least(match func(*Conn) bool) (least *Conn) {
	for _, c := range l.conns {
		if match(c) && (least == nil || c.rank < least.rank) {
			least = c
		}
	}
	return least
}

// count counts the connections that match accepts. The caller holds mu.
func (l *Limiter) count(match func(*Conn) bool) (n int) {
	for _, c := range l.conns {
		if match(c) {
			n++
		}
	}
	return n
}
