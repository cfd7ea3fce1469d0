package lb

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/zeebo/xxh3"
)

// Why no endpoint was picked.
var (
	// ErrNoEndpoint: the set has no endpoint at all.
	ErrNoEndpoint = errors.New("the upstream has no endpoint")
	// ErrUnavailable: no endpoint is usable.
	ErrUnavailable = errors.New("no endpoint is usable")
	// ErrFull: every usable endpoint has as many sessions as it may.
	ErrFull = errors.New("every usable endpoint is at its limit")
	// ErrTried: every usable endpoint is among Request.Tried.
	ErrTried = errors.New("every usable endpoint was tried")
)

// A Request is the input of a pick. It is only read.
type Request struct {
	// Source is the client's address. The consistent policies hash its IP address;
	// a client of a unix socket has no IP address and is sent anywhere.
	Source netip.AddrPort
	// Key is hashed instead of Source, if it is not 0; see [KeyOf].
	Key uint64
	// Tried are endpoints that this client is not to be sent to again.
	Tried []*Endpoint
	// Eligible says which endpoints may be picked.
	Eligible Eligibility
}

// An Eligibility says which endpoints may be picked, apart from room and draining.
type Eligibility uint8

const (
	// Usable: no verdict is against the endpoint; in panic every endpoint, see [Config.PanicBelow].
	Usable Eligibility = iota
	// Working: the endpoint is usable, and not failing, see [Endpoint.SetFailing].
	Working
	// LastResort: the endpoint is neither barred nor failing, whatever other verdicts are against it, see
	// [Endpoint.SetBarred]: a doubtful endpoint is better than a refused client. In panic, Working and
	// LastResort only mean that the endpoint is not failing.
	LastResort
)

func (r *Request) tried(e *Endpoint) bool { return len(r.Tried) > 0 && slices.Contains(r.Tried, e) }

// hash returns the key's hash.
func (r *Request) hash(random func() uint64) uint64 {
	var b [16]byte
	switch {
	case r.Key != 0:
		binary.LittleEndian.PutUint64(b[:], r.Key)
	case r.Source.Addr().IsValid():
		b = r.Source.Addr().As16() // an IPv4 address as ::ffff:a.b.c.d
	default:
		return random()
	}
	return xxh3.Hash(b[:])
}

// Pick chooses an endpoint and acquires it: the caller calls [Endpoint.Release] once. The error is
// [ErrNoEndpoint], [ErrUnavailable], [ErrFull] or [ErrTried], unwrapped.
//
// The local zone comes first, then the other zones, then backups. Backups serve a client that has tried
// all primaries. When primaries are full, backups serve only with [Config.BackupWhenFull].
func (s *Set) Pick(r *Request) (*Endpoint, error) {
	p := pick{Request: r, excluded: s.excludedFlags(r)}
	if s.cfg.Policy.Keyed() {
		p.hash = r.hash(s.random)
	}
	first, second := s.order(&p)
	for _, at := range [...]int{first, second, backup} {
		if at == backup && p.someFull && !s.cfg.BackupWhenFull {
			break
		}
		if e := s.tiers[at].pick(&p); e != nil {
			return e, nil
		}
	}
	return nil, s.why(&p)
}

// A pick is a Request and the state of answering it.
type pick struct {
	*Request
	hash                uint64
	excluded            uint64 // the flags that keep an endpoint out
	someFull, someTried bool   // an endpoint has no room; an endpoint was tried
}

// includesUnusable reports whether unusable endpoints may be picked, too.
func (p *pick) includesUnusable() bool { return p.excluded&unusableFlags == 0 }

// excludedFlags returns the flags that keep an endpoint from being picked.
func (s *Set) excludedFlags(r *Request) uint64 {
	switch panicking := s.panicking(); {
	case panicking && r.Eligible != Usable:
		return flagFailing
	case r.Eligible == LastResort:
		return noLastResortFlags
	case r.Eligible == Working:
		return unusableFlags | flagFailing
	case panicking:
		return 0
	}
	return unusableFlags
}

// candidates is how many endpoints of the tier may be picked, full ones included.
func (t *tier) candidates(p *pick) int64 {
	switch p.excluded {
	case unusableFlags | flagFailing:
		return t.working.Load()
	case noLastResortFlags:
		return t.lastResort.Load()
	case flagFailing:
		return t.notFailing.Load()
	case 0:
		return t.counted.Load()
	}
	return t.usable.Load()
}

func (s *Set) why(p *pick) error {
	switch {
	case p.someFull:
		return ErrFull
	case p.someTried:
		return ErrTried
	case len(s.members) == 0:
		return ErrNoEndpoint
	}
	return ErrUnavailable
}

// Panicking reports whether all endpoints are used, see [Config.PanicBelow].
func (s *Set) Panicking() bool { return s.panicking() }

// Has reports whether there are endpoints of an eligibility, with room or without.
func (s *Set) Has(of Eligibility) bool {
	p := pick{excluded: s.excludedFlags(&Request{Eligible: of})}
	return slices.ContainsFunc(s.tiers[:], func(t *tier) bool { return t.candidates(&p) > 0 })
}

// panicking reports whether all primaries are used because too few are usable. If no primary is
// usable and a backup is, the set does not panic.
func (s *Set) panicking() bool {
	if s.cfg.PanicBelow <= 0 {
		return false
	}
	l, r := s.tiers[local], s.tiers[remote]
	counted, usable := l.counted.Load()+r.counted.Load(), l.usable.Load()+r.usable.Load()
	if usable == 0 && s.tiers[backup].usable.Load() > 0 {
		return false
	}
	return counted > 0 && float64(usable) < s.cfg.PanicBelow*float64(counted)
}

// localPart is the part, of whole, of the clients that go to the local zone: whole until the zone's
// usable share falls below SpillBelow, then in proportion to that share. If picks include unusable
// endpoints, these count as usable.
func (s *Set) localPart(includesUnusable bool) uint64 {
	if s.cfg.Zone == "" {
		return whole
	}
	l := s.tiers[local]
	counted, usable := l.counted.Load(), l.usable.Load()
	if includesUnusable {
		usable = counted
	}
	if usable == 0 || counted == 0 {
		return 0
	}
	if share := float64(usable) / float64(counted); share < s.cfg.SpillBelow {
		return uint64(whole * share / s.cfg.SpillBelow)
	}
	return whole
}

// golden is 2^64 over the golden ratio: its multiples, as fractions of 2^64, are
// spread as evenly as a sequence can be, from whichever one is looked at.
const golden = 0x9e3779b97f4a7c15

// order returns the primary tier that this client is sent to, and the tier to try if the first has no
// endpoint for it.
func (s *Set) order(p *pick) (first, second int) {
	part := s.localPart(p.includesUnusable())
	if part == whole {
		return local, remote
	}
	where := mix(p.hash)
	if !s.cfg.Policy.Keyed() {
		where = s.spill.Add(1) * golden
	}
	if where>>48 < part {
		return local, remote
	}
	return remote, local
}

// pick picks by the policy or, if the policy has found none, any endpoint.
func (t *tier) pick(p *pick) *Endpoint {
	if t.candidates(p) == 0 {
		return nil
	}
	e := t.byPolicy(p)
	if e == nil {
		e = t.any(p)
	}
	if e == nil {
		t.noteWhyNone(p)
	}
	return e
}

func (t *tier) byPolicy(p *pick) *Endpoint {
	switch t.set.cfg.Policy {
	case LeastConn:
		if !p.includesUnusable() { // the tree knows only usable ones
			return t.leastConn(p)
		}
		return t.randomTwo(p)
	case RandomTwo:
		return t.randomTwo(p)
	case Maglev, SourceIP:
		return t.consistent(p)
	case First:
		return nil // any begins with the first
	}
	return t.roundRobin(p)
}

// take acquires an endpoint, unless this client has tried it.
func (p *pick) take(e *Endpoint) bool { return !p.tried(e) && e.acquire(p.excluded) }

// any takes any endpoint that can be had, for [First] in order. It is the final scan where a policy
// has met none, because nearly all are unusable or full. It looks at the bits of open
// endpoints, 64 at a time, and at no weights.
func (t *tier) any(p *pick) *Endpoint {
	switch policy := t.set.cfg.Policy; {
	case p.includesUnusable():
		return t.anyOfAll(p)
	case policy.Keyed():
		return t.nearest(p)
	case policy == First:
		return t.from(0, p)
	}
	n := t.open.count()
	if n == 0 {
		return nil
	}
	return t.from(max(t.open.at(int(t.turn.Add(1)%uint64(n))), 0), p)
}

// from takes the first endpoint that can be had from member i on, and from member 0 to i after these.
func (t *tier) from(i int, p *pick) *Endpoint {
	for k := t.open.next(i); k >= 0; k = t.open.next(k + 1) {
		if p.take(t.members[k]) {
			return t.members[k]
		}
	}
	for k := t.open.next(0); k >= 0 && k < i; k = t.open.next(k + 1) {
		if p.take(t.members[k]) {
			return t.members[k]
		}
	}
	return nil
}

// anyOfAll is any where unusable endpoints may be picked, too.
func (t *tier) anyOfAll(p *pick) *Endpoint {
	n := len(t.members)
	from := 0
	switch policy := t.set.cfg.Policy; {
	case policy.Keyed():
		from = int(reduce(p.hash, uint64(n)))
	case policy != First:
		from = int(t.turn.Add(1) % uint64(n))
	}
	for i := range n { // few steps: only full, tried or leaving ones are in the way
		if e := t.members[(from+i)%n]; p.take(e) {
			return e
		}
	}
	return nil
}

// noteWhyNone notes why a tier that has usable endpoints had none for this client.
func (t *tier) noteWhyNone(p *pick) {
	n := t.candidates(p)
	for _, e := range p.Tried {
		for _, s := range e.memberships() {
			w := e.word.Load()
			if s.tier == t && w&(absentFlags|p.excluded) == 0 {
				p.someTried = true
				n--
			}
		}
	}
	p.someFull = p.someFull || n > 0
}
