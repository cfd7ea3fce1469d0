// Package admission decides which clients of an HTTP address are served when there are more than it has places for:
// clients of the admin API and of the metrics. A client of lesser right keeps no client of greater right out, and a client
// that sends nothing or reads nothing keeps no other client out.
//
// It has three bounds. Connections: the last place is kept free, by closing the connection that has waited longest for
// its client. With TLS it is one of the network that floods, if one does: see [idle]. Requests: fewer than there are connections, and fewer the lesser the right is, so that every client can
// ask. Requests of one [Kind] are limited, because each lasts long or needs much memory. Where a bound is reached, a
// request takes the place of a lasting one of lesser right, and is refused otherwise. A request that was never begun,
// as a probe is, counts as a connection alone.
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

// A Rank is the right of a client. A greater one is served first.
type Rank int

// Ranks.
const (
	Nobody  Rank = iota // it may ask for probes alone
	Reads               // it may read
	Changes             // it may change
	Own                 // root, or the user of this process
)

// A Kind is the kind of a request.
type Kind int

// Kinds of requests. Short is all that end soon by themselves.
const (
	Short   Kind = iota
	Look         // waits between two looks
	Stream       // lasts as long as its client wants
	Profile      // is taken by one at a time
	Answer       // has a long answer in memory until its client has read it
	Scrape       // has all metrics in memory likewise
	kinds
)

// bounds are the bounds of each kind: how many there are at once, and how long another one waits for a place.
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

// lasts reports whether requests of a kind are ended when another one needs the place.
func (k Kind) lasts() bool { return k == Look || k == Stream || k == Profile }

var (
	// ErrBusy is wrapped by the error of a request for which there is no place now.
	ErrBusy = errors.New("try again in a second")
	// ErrDisplaced is the cause when a request has ended because a client of greater right, or a shorter request, took its place.
	ErrDisplaced = fmt.Errorf("a later request displaced this request: %w", ErrBusy)
)

// A Limiter limits the clients of one [net/http.Server], and is the server's [net.Listener]. It is safe for concurrent
// use.
type Limiter struct {
	accepted  chan net.Conn
	closed    chan struct{}
	once      sync.Once
	limit     *listener.Limit
	most      int           // connections
	writeTime time.Duration // from the beginning of an answer

	mu      sync.Mutex
	grace   time.Duration
	silent  time.Duration
	conns   []*Conn   // open; the one waiting longest for its client is first
	waiters []*waiter // in the order in which they came
	idle    idle
}

// graceTime is the least time that a client has for the rest of its request, and again for reading the response. A
// client on this machine needs much less. silentTime is the time for the request, which a client sends at once and as
// soon as it is connected. slowTime is how long the reading of an answer may take while another request waits for its place.
const (
	graceTime  = 250 * time.Millisecond
	silentTime = 5 * time.Millisecond
	slowTime   = 5 * time.Second
)

// New returns a limiter of most connections at a time, at least 8. A client has writeTime to read its answer.
func New(most int, writeTime time.Duration) *Limiter {
	return &Limiter{
		accepted: make(chan net.Conn), closed: make(chan struct{}), limit: listener.NewLimit(most), most: most, writeTime: writeTime,
		grace: graceTime, silent: silentTime,
	}
}

// Limit is for the listeners that accept the connections.
func (l *Limiter) Limit() *listener.Limit { return l.limit }

// requests returns how many requests there may be at once for one more of a rank to begin. A quarter of the connections
// is left for clients that have not asked yet.
func (l *Limiter) requests(of Rank) int {
	return l.most * [...]int{Nobody: 0, Reads: 4, Changes: 5, Own: 6}[of] / 8
}

// Counts returns how many connections there are, and on how many of them a request is being performed.
func (l *Limiter) Counts() (conns, performed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns), l.count(func(c *Conn) bool { return c.busy })
}

// Held returns how many places of a kind are held.
func (l *Limiter) Held(kind Kind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count(func(c *Conn) bool { return c.kind == kind })
}

// Accept returns the next connection that was put.
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

// makeRoom closes the connection that waits longest for its client if all places are taken, and a connection with an answer that
// is read slowly if another request waits for its place. It does so at once, or when the client's grace time is over.
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

// surplus removes the connection that is to be closed when all places are taken; nil: none yet. The caller holds mu.
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
		time.AfterFunc(silence, l.makeRoom)
	}
	if c == nil {
		c = l.evict(func(c *Conn) bool { return c.queued }, left(0))
	}
	if c == nil {
		c = l.evict(func(c *Conn) bool { return !c.busy }, left(l.grace))
	}
	if c == nil { // all that is left are requests that count as a connection alone
		c = l.evict(func(c *Conn) bool { return c.busy && !c.running }, left(l.grace))
	}
	return c
}

// evict removes the first connection of the least rank for which match reports true. If its client has time left,
// makeRoom is called when that is over. The caller holds mu, and closes the connection.
func (l *Limiter) evict(match func(*Conn) bool, left func(*Conn) time.Duration) *Conn {
	c := l.least(match)
	if c == nil {
		return nil
	}
	if left := left(c); left > 0 {
		time.AfterFunc(left, l.makeRoom)
		return nil
	}
	l.remove(c)
	return c
}

// remove removes a connection, unless it was removed. The caller holds mu, and closes the connection.
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

// least returns the first connection of the least rank for which match reports true; nil: there is none. The caller
// holds mu.
func (l *Limiter) least(match func(*Conn) bool) (least *Conn) {
	for _, c := range l.conns {
		if match(c) && (least == nil || c.rank < least.rank) {
			least = c
		}
	}
	return least
}

// count counts connections. The caller holds mu.
func (l *Limiter) count(match func(*Conn) bool) (n int) {
	for _, c := range l.conns {
		if match(c) {
			n++
		}
	}
	return n
}
