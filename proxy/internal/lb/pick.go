package lb

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/zeebo/xxh3"
)

// Reasons why no endpoint was picked.
var (
	// ErrNoEndpoint means that the set has no endpoint at all.
	ErrNoEndpoint = errors.New("the upstream has no endpoint")
	// ErrUnavailable means that no endpoint is usable.
	ErrUnavailable = errors.New("no endpoint is usable")
	// ErrFull means that every usable endpoint is at its limit.
	ErrFull = errors.New("every usable endpoint is at its limit")
	// ErrTried means that every usable endpoint is in Request.Tried.
	ErrTried = errors.New("every usable endpoint was tried")
)

// A Request describes the client to pick for. Pick does not change it.
type Request struct {
	// Source is the client's address. The consistent policies hash its IP address. A client of a unix socket has no
	// IP address, and may get any endpoint.
	Source netip.AddrPort
	// Key is hashed instead of Source, if it is not 0; see [KeyOf].
	Key uint64
	// Tried are endpoints that this client must not get again.
	Tried []*Endpoint
	// Eligible says which endpoints may be picked.
	Eligible Eligibility
}

// An Eligibility says which endpoints may be picked, apart from room and draining.
type Eligibility uint8

const (
	// Usable means that no verdict is against the endpoint. In panic it means every endpoint, see
	// [Config.PanicBelow].
	Usable Eligibility = iota
	// Working means that the endpoint is usable and not failing, see [Endpoint.SetFailing].
	Working
	// LastResort means that the endpoint is neither barred nor failing, whatever other verdicts are against it, see
	// [Endpoint.SetBarred]: a doubtful endpoint is better than a refused client. In panic, Working and LastResort
	// only mean that the endpoint is not failing.
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

// A pick is a Request while it is answered.
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
	switch panicking := s.Panicking(); {
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

// candidates returns how many endpoints of the tier may be picked, full endpoints included.
func (t *tier) candidates(p *pick) int64 {
	switch p.excluded {
	case unusableFlags | flagFailing:
		return t.counts[working].Load()
	case noLastResortFlags:
		return t.counts[lastResort].Load()
	case flagFailing:
		return t.counts[notFailing].Load()
	case 0:
		return t.counts[counted].Load()
	}
	return t.counts[usable].Load()
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

// Has reports whether there are endpoints of an eligibility, full endpoints included.
func (s *Set) Has(of Eligibility) bool {
	p := pick{excluded: s.excludedFlags(&Request{Eligible: of})}
	return slices.ContainsFunc(s.tiers[:], func(t *tier) bool { return t.candidates(&p) > 0 })
}

// Panicking reports whether all primaries are used because too few are usable, see [Config.PanicBelow]. If no primary is
// usable and a backup is, the set does not panic.
func (s *Set) Panicking() bool {
	if s.cfg.PanicBelow <= 0 {
		return false
	}
	l, r := s.tiers[local], s.tiers[remote]
	all, well := l.counts[counted].Load()+r.counts[counted].Load(), l.counts[usable].Load()+r.counts[usable].Load()
	if well == 0 && s.tiers[backup].counts[usable].Load() > 0 {
		return false
	}
	return all > 0 && float64(well) < s.cfg.PanicBelow*float64(all)
}

// localPart returns which part of the clients, in parts of whole, goes to the local zone: whole until the zone's
// usable share falls below SpillBelow, then in proportion to the share. If picks include unusable endpoints, these
// count as usable.
func (s *Set) localPart(includesUnusable bool) uint64 {
	if s.cfg.Zone == "" {
		return whole
	}
	l := s.tiers[local]
	all, well := l.counts[counted].Load(), l.counts[usable].Load()
	if includesUnusable {
		well = all
	}
	if well == 0 || all == 0 {
		return 0
	}
	if share := float64(well) / float64(all); share < s.cfg.SpillBelow {
		return uint64(whole * share / s.cfg.SpillBelow)
	}
	return whole
}

// golden is 2^64 over the golden ratio. Its multiples, as fractions of 2^64, are spread as evenly as a sequence can
// be, from any multiple on.
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
		if !p.includesUnusable() { // the tree has only usable endpoints
			return t.leastConn(p)
		}
		return t.randomTwo(p)
	case RandomTwo:
		return t.randomTwo(p)
	case Maglev, SourceIP:
		return t.consistent(p)
	case First:
		return nil // any starts with the first endpoint as well
	}
	return t.roundRobin(p)
}

// take acquires an endpoint, unless this client has tried it.
func (p *pick) take(e *Endpoint) bool { return !p.tried(e) && e.acquire(p.excluded) }

// any takes the first endpoint in order that can be acquired. It is the policy First, and the last search if another
// policy has found nothing because nearly all endpoints are unusable or full. It looks at the bits of open endpoints,
// 64 at a time, and ignores weights.
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

// from takes the first endpoint that can be acquired, from member i on and then from member 0.
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

// anyOfAll is any for picks that may take unusable endpoints.
func (t *tier) anyOfAll(p *pick) *Endpoint {
	n := len(t.members)
	from := 0
	switch policy := t.set.cfg.Policy; {
	case policy.Keyed():
		from = int(reduce(p.hash, uint64(n)))
	case policy != First:
		from = int(t.turn.Add(1) % uint64(n))
	}
	for i := range n { // few steps: only full, tried and leaving endpoints are skipped
		if e := t.members[(from+i)%n]; p.take(e) {
			return e
		}
	}
	return nil
}

// noteWhyNone notes why a tier with usable endpoints had none for this client.
func (t *tier) noteWhyNone(p *pick) {
	n := t.candidates(p)
	for i, e := range p.Tried {
		if slices.Contains(p.Tried[:i], e) {
			continue
		}
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
