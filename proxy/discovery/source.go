package discovery

import (
	"context"
	"slices"
	"sync"
	"time"
)

// An Endpoint is one address that connections may go to.
type Endpoint struct {
	// Address is host:port, [ipv6]:port, unix:/path or unix:@name. A host that is
	// a name is resolved when it is dialed.
	Address string
	// Name is what the endpoint is known by, unique in its upstream; empty: its
	// address.
	Name string
	// Weight is its share beside the others' weights, from 0, which is none, to
	// [MaxWeight]; sources fill in 1 where nothing is said.
	Weight int
	// Backup endpoints get connections when no other one can.
	Backup bool
	// Zone is where it is, as in the configuration's zone_aware.
	Zone string
	// Connections is how many it may have at once; 0: any number.
	Connections int
}

// Identity is what tells an endpoint from the others of its upstream: its name,
// or else its address.
func (e Endpoint) Identity() string {
	if e.Name != "" {
		return e.Name
	}
	return e.Address
}

// MaxWeight is the largest weight of an endpoint.
const MaxWeight = 256

// A Source tells the endpoints of an upstream. Its methods are safe for concurrent
// use, but Watch is called once at a time.
type Source interface {
	// Watch calls update with all endpoints as soon as they are known, and again
	// each time that they have changed, until ctx is done; then it returns. The
	// calls come from one goroutine, one after the other; what they are given is
	// theirs. The set may be empty. Its order is that of the list or file, and
	// for DNS by priority and address, so that equal answers give equal sets.
	Watch(ctx context.Context, update func([]Endpoint))
	// Status is how the source is doing at this moment.
	Status() Status
}

// A Status says how much the endpoints of a [Source] can be relied on.
type Status struct {
	// Kind is "static", "file" or "dns".
	Kind string
	// From is where the endpoints come from, such as the file's path.
	From string
	// Endpoints is how many there are.
	Endpoints int
	// Changed is when they last changed, and Confirmed when they were last known
	// to be right. Both are zero before the first answer.
	Changed, Confirmed time.Time
	// Next is when the source asks again; zero if it waits for an event.
	Next time.Time
	// Err is why the latest attempt to find them failed, nil if it did not. The
	// endpoints are those of an earlier one.
	Err error
	// Failures counts the attempts that failed since Confirmed.
	Failures int
	// Stale: the endpoints are older than what they come from lets them be.
	Stale bool
}

// Static is a [Source] of endpoints that never change.
func Static(endpoints []Endpoint) Source {
	return &static{endpoints: slices.Clone(endpoints), since: time.Now()}
}

type static struct {
	endpoints []Endpoint
	since     time.Time
}

func (s *static) Watch(ctx context.Context, update func([]Endpoint)) {
	update(slices.Clone(s.endpoints))
	<-ctx.Done()
}

func (s *static) Status() Status {
	return Status{Kind: "static", Endpoints: len(s.endpoints), Changed: s.since, Confirmed: s.since}
}

// A board holds the status that a watching goroutine writes and others read.
type board struct {
	mu     sync.Mutex
	status Status
}

func (b *board) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

func (b *board) note(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

// confirmed notes a good answer.
func (b *board) confirmed(now time.Time, endpoints int, changed bool) {
	b.note(func(s *Status) {
		s.Confirmed, s.Endpoints, s.Err, s.Failures, s.Stale = now, endpoints, nil, 0, false
		if changed {
			s.Changed = now
		}
	})
}
