package limit

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/source"
)

var (
	// ErrSourceConnections means that the source has reached its connection limit.
	ErrSourceConnections = errors.New("connection limit of the source reached")
	// ErrSourceRate means that the source's connections come faster than its limit allows.
	ErrSourceRate = errors.New("connection rate limit of the source reached")
	// ErrSources means that the table is full of sources that have connections.
	ErrSources = errors.New("the table of sources is full")
)

// ErrConfig is wrapped by the error of [NewSources] if a field of [SourcesConfig] is invalid.
var ErrConfig = errors.New("invalid limit configuration")

// SourcesConfig sets up [Sources]. The zero value limits nothing.
type SourcesConfig struct {
	// Connections is how many connections a source may have at once, 0 for no limit.
	Connections int
	// PerSecond is how many connections of a source may come per second, 0 for no limit. See [Rate.Set].
	PerSecond float64
	// PrefixV4 and PrefixV6 are the number of bits that the addresses of one source share. Defaults: 32, 64.
	PrefixV4, PrefixV6 int
	// Entries limits the table: it is how many sources are remembered, with 56 bytes each, and a fifth more because
	// hashes spread unevenly. A connection takes another 20 bytes. A source with connections is never forgotten. A
	// source without connections is forgotten when another needs its place, the longest unseen first. If Entries is
	// at least the connection limit, no source is ever refused for lack of a place. Default 65,536.
	Entries int
}

const (
	defaultEntries = 1 << 16
	shards         = 64
)

// Sources counts connections by source: TCP connections by the prefix of the address, connections of unix sockets by
// user. Its memory is bounded however many sources come, and grows only as needed.
type Sources struct {
	rules   atomic.Pointer[rules]
	entries int
	table   atomic.Pointer[table] // changed with all stripes locked
	seed    maphash.Seed
	stripes [shards]stripe
}

// rules are the part of the configuration that may change.
type rules struct {
	connections int
	pace        *interval
}

// An Entry is the place of one connection. It is a number, so that a caller with many connections needs little
// memory. 0 is no entry.
type Entry uint32 // 1 + index<<6 + stripe

// NewSources returns an empty table.
func NewSources(cfg SourcesConfig) (*Sources, error) {
	cfg.Entries = cmp.Or(cfg.Entries, defaultEntries)
	if cfg.Entries < 0 || cfg.Entries > 1<<25 {
		return nil, fmt.Errorf("limit: %w: %d entries; write at most %d", ErrConfig, cfg.Entries, 1<<25)
	}
	s := &Sources{seed: maphash.MakeSeed(), entries: cfg.Entries}
	t, err := s.newTable(cfg.PrefixV4, cfg.PrefixV6)
	if err != nil {
		return nil, err
	}
	s.table.Store(t)
	for i := range s.stripes {
		s.stripes[i].free = none
	}
	s.Set(cfg.Connections, cfg.PerSecond)
	return s, nil
}

// Set changes the limits of sources. Connections beyond a lower limit stay.
func (s *Sources) Set(connections int, perSecond float64) {
	s.rules.Store(&rules{connections: max(connections, 0), pace: newInterval(perSecond)})
}

// Admit counts a connection of a source, or returns why it is refused: [ErrSourceConnections], [ErrSourceRate],
// [ErrSources], or [source.ErrUnknown] for an unknown source. The caller gives the entry back by Leave when the
// connection is over.
func (s *Sources) Admit(src source.Source, now int64) (Entry, error) {
	if !src.Known() {
		return 0, source.ErrUnknown
	}
	return s.hold(keyOf(src), func(k key) (uint32, error) { return s.table.Load().admit(k, s.rules.Load(), now) })
}

// hold holds a connection for which admit finds a place in the table.
func (s *Sources) hold(k key, admit func(k key) (place uint32, err error)) (Entry, error) {
	at := maphash.Comparable(s.seed, k) % shards
	p := &s.stripes[at]
	p.mu.Lock()
	defer p.mu.Unlock()
	place, err := admit(k)
	if err != nil {
		return 0, err
	}
	return Entry(1 + uint32(p.hold(k, place))<<6 + uint32(at)), nil
}

// Adopt counts a connection that exists already, even if a limit is reached or the table is full. It does not use the
// source's rate. For an unknown source it returns no entry. The caller gives the entry back by Leave when the
// connection is over.
func (s *Sources) Adopt(src source.Source, now int64) Entry {
	if !src.Known() {
		return 0
	}
	e, _ := s.hold(keyOf(src), func(k key) (uint32, error) { return s.table.Load().adopt(k, now), nil })
	return e
}

// Leave gives an entry back, once. It does nothing for 0.
func (s *Sources) Leave(e Entry) {
	if e == 0 {
		return
	}
	p := &s.stripes[(e-1)%shards]
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.letGo(int32((e - 1) >> 6)); place > 0 {
		s.table.Load().leave(place)
	}
}

// SetPrefix changes PrefixV4 and PrefixV6 of [SourcesConfig] at a time of Admit's clock. From then on connections
// count under their new prefixes; connections beyond the limit of a source stay. If sources become parts of a larger
// source, their used rates count in the larger one. If a source is divided, each of its parts that has a connection
// may have used the whole rate. An error wraps [ErrConfig], and nothing has changed. No client is admitted during the
// change, which takes about a millisecond with 10,000 connections.
func (s *Sources) SetPrefix(v4, v6 int, now int64) error {
	next, err := s.newTable(v4, v6)
	if err != nil {
		return err
	}
	for i := range s.stripes {
		s.stripes[i].mu.Lock()
		defer s.stripes[i].mu.Unlock()
	}
	before := s.table.Load()
	if before.v4 == next.v4 && before.v6 == next.v6 {
		return nil
	}
	pace := s.rules.Load().pace
	next.merge(before, pace, now)
	for i := range s.stripes {
		for h := range s.stripes[i].all() {
			h.move(next.count(h.key(), before, h.inTable(), now))
		}
	}
	s.table.Store(next)
	return nil
}

// A key is what all connections of one source have in common.
type key struct {
	hi, lo uint64 // an IPv4 address is mapped into IPv6; for a user, lo is its number
	hash   uint32
	unix   bool
}

// keyOf returns the key of a known source, with the whole address and without the hash.
func keyOf(src source.Source) key {
	if peer, ok := src.Credentials(); ok {
		return key{unix: true, lo: uint64(peer.UID)}
	}
	b := src.AddrPort().Addr().As16()
	return key{hi: binary.BigEndian.Uint64(b[:8]), lo: binary.BigEndian.Uint64(b[8:])}
}

// SourcesStats describes a table.
type SourcesStats struct {
	Sources     int // remembered now
	Connections int // of all sources
}

// Stats goes through the table.
func (s *Sources) Stats() (sum SourcesStats) {
	t := s.table.Load()
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		sum.Sources += len(s.entries)
		sum.Connections += s.live
		s.mu.Unlock()
	}
	return sum
}

// A table holds sources by prefixes of one length.
type table struct {
	v4, v6 int
	seed   maphash.Seed
	shards [shards]shard
}

// newTable returns an empty table, or an error about the prefixes. 0 means the default.
func (s *Sources) newTable(v4, v6 int) (*table, error) {
	if v4, v6 = cmp.Or(v4, 32), cmp.Or(v6, 64); v4 < 1 || v4 > 32 || v6 < 1 || v6 > 128 {
		return nil, fmt.Errorf("limit: %w: source prefixes of %d and %d bits; write 1 to 32 and 1 to 128", ErrConfig, v4, v6)
	}
	t := &table{v4: v4, v6: v6, seed: s.seed}
	for i := range t.shards {
		t.shards[i].most, t.shards[i].idle = share(s.entries), [2]int32{none, none}
	}
	return t, nil
}

// share returns how many entries a shard has: its part of all entries, and six standard deviations more.
func share(entries int) int {
	part := (entries + shards - 1) / shards
	return part + 4 + int(6*math.Sqrt(float64(part)))
}

// keep returns how many bits of a key make a source. IPv4 addresses are mapped into IPv6, even with their ends cut
// off.
func (t *table) keep(k key) int {
	switch {
	case k.unix:
		return 128
	case k.hi == 0 && k.lo>>32 == 0xffff:
		return 96 + t.v4
	}
	return t.v6
}

// of returns the key of the source that a longer key belongs to, with its hash, and its shard.
func (t *table) of(k key) (cut key, at uint64) {
	k.hash = 0
	if keep := t.keep(k); keep <= 64 {
		k.hi, k.lo = k.hi>>(64-keep)<<(64-keep), 0
	} else {
		k.lo = k.lo >> (128 - keep) << (128 - keep)
	}
	hash := maphash.Comparable(t.seed, k)
	k.hash = uint32(hash / shards)
	return k, hash % shards
}

// admit counts a connection of a source, or returns why it is refused. place is not 0.
func (t *table) admit(k key, r *rules, now int64) (place uint32, err error) {
	cut, at := t.of(k)
	i, err := t.shards[at].admit(cut, r, now)
	if err != nil {
		return 0, err
	}
	return placeOf(i, at), nil
}

// adopt counts a connection of a source even if there is no room.
func (t *table) adopt(k key, now int64) (place uint32) {
	cut, at := t.of(k)
	s := &t.shards[at]
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.place(cut, now, math.MaxInt32)
	s.count(i)
	return placeOf(i, at)
}

func placeOf(i int32, at uint64) uint32 { return 1 + uint32(i)<<6 + uint32(at) }

// leave takes a connection off the source at a place.
func (t *table) leave(place uint32) {
	t.shards[(place-1)%shards].leave(int32((place - 1) >> 6))
}

// at returns the source at a place. No other goroutine may use the table.
func (t *table) at(place uint32) *record {
	return &t.shards[(place-1)%shards].entries[(place-1)>>6]
}

// merge copies the used rates of sources of another table that are parts of sources here. It copies the most recently
// seen sources last. No other goroutine may use the table.
func (t *table) merge(from *table, p *interval, now int64) {
	for s := range from.shards {
		shard := &from.shards[s]
		for i := shard.idle[0]; i != none; i = shard.entries[i].late {
			t.add(from, &shard.entries[i], p, now)
		}
		for i := range shard.entries {
			if shard.entries[i].live > 0 {
				t.add(from, &shard.entries[i], p, now)
			}
		}
	}
}

// add copies the used rate of one source. It counts as used here, up to the most that a source can have used.
func (t *table) add(from *table, e *record, p *interval, now int64) {
	if e.due <= now || t.keep(e.key) > from.keep(e.key) {
		return
	}
	cut, at := t.of(e.key)
	shard := &t.shards[at]
	i := shard.place(cut, now, shard.most)
	if i == none {
		return // there is no idle source to replace: the used rate is lost
	}
	r := &shard.entries[i]
	r.due = max(r.due, now) + (e.due - now)
	if p != nil {
		r.due = min(r.due, now+p.slip+p.each)
	}
}

// count counts a connection that another table has admitted, even beyond the limit, and returns its place here. No
// other goroutine may use the table.
func (t *table) count(k key, from *table, place uint32, now int64) uint32 {
	cut, at := t.of(k)
	shard := &t.shards[at]
	i := shard.place(cut, now, math.MaxInt32)
	if t.keep(k) > from.keep(k) { // the connection may have used the whole rate of its old source
		shard.entries[i].due = max(shard.entries[i].due, from.at(place).due)
	}
	shard.count(i)
	return placeOf(i, at)
}

// A shard is a part of a table of sources: a hash table with chains. It holds only numbers, so it does not allocate
// once it has grown, and the garbage collector has nothing to scan. Sources without connections are in a list, the
// most recently seen one at its end.
type shard struct {
	mu      sync.Mutex
	most    int       // maximum number of entries
	heads   []int32   // of chains, by hash: a power of two, or empty
	entries []record  // never shrinks
	idle    [2]int32  // first and last of the list
	live    int       // connections
	_       [128]byte // its own cache lines
}

// A record is a remembered source.
type record struct {
	key        key
	due        int64 // of its rate
	next       int32 // of its chain
	prev, late int32 // of the idle list, if it has no connections
	live       int32 // connections
}

const (
	none         = -1
	leastEntries = 8
)

func (s *shard) admit(k key, r *rules, now int64) (int32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.place(k, now, s.most)
	if i == none {
		return none, ErrSources
	}
	e := &s.entries[i]
	if e.live == 0 { // seen just now
		s.unlist(i)
		s.list(i)
	}
	switch {
	case r.connections > 0 && int(e.live) >= r.connections:
		return none, ErrSourceConnections
	case r.pace.early(e.due, now) > 0:
		return none, ErrSourceRate
	}
	if r.pace != nil {
		e.due = max(e.due, now) + r.pace.each
	}
	s.count(i)
	return i, nil
}

// count counts a connection of a source. The caller holds s.mu, or is alone.
func (s *shard) count(i int32) {
	if s.entries[i].live == 0 {
		s.unlist(i)
	}
	s.entries[i].live++
	s.live++
}

// leave takes a connection off a source. If the source has no connection, the caller has given one back twice: that
// is a bug, and must not cost other sources.
func (s *shard) leave(i int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) >= len(s.entries) || s.entries[i].live == 0 {
		return
	}
	s.live--
	if s.entries[i].live--; s.entries[i].live == 0 {
		s.list(i)
	}
}

func (s *shard) find(k key) int32 {
	if len(s.heads) == 0 {
		return none
	}
	i := *s.chain(k.hash)
	for i != none && s.entries[i].key != k {
		i = s.entries[i].next
	}
	return i
}

func (s *shard) chain(hash uint32) *int32 { return &s.heads[hash&uint32(len(s.heads)-1)] }

// place returns the entry of a source. If there is none it makes an idle one: a new entry while there are fewer than limit,
// or else the entry of the source that has been idle longest. It returns none if no source is idle.
func (s *shard) place(k key, now int64, limit int) (i int32) {
	i = s.find(k)
	switch {
	case i != none:
		return i
	case len(s.entries) < limit:
		if len(s.entries) == len(s.heads) {
			s.grow()
		}
		i = int32(len(s.entries))
		s.entries = append(s.entries, record{})
	case s.idle[0] == none:
		return none
	default:
		i = s.idle[0]
		s.forget(i)
	}
	head := s.chain(k.hash)
	s.entries[i] = record{key: k, due: now, next: *head}
	*head = i
	s.list(i)
	return i
}

// forget removes an idle source from the table.
func (s *shard) forget(i int32) {
	s.unlist(i)
	at := s.chain(s.entries[i].key.hash)
	for *at != i {
		at = &s.entries[*at].next
	}
	*at = s.entries[i].next
}

// grow doubles the table.
func (s *shard) grow() {
	n := max(2*len(s.heads), leastEntries)
	s.heads = make([]int32, n)
	for i := range s.heads {
		s.heads[i] = none
	}
	entries := make([]record, len(s.entries), max(min(n, s.most), len(s.entries)))
	copy(entries, s.entries)
	s.entries = entries
	for i := range s.entries {
		e := &s.entries[i]
		head := s.chain(e.key.hash)
		e.next, *head = *head, int32(i)
	}
}

// list puts a source at the end of the idle list.
func (s *shard) list(i int32) {
	last := s.idle[1]
	s.entries[i].prev, s.entries[i].late = last, none
	if last == none {
		s.idle[0] = i
	} else {
		s.entries[last].late = i
	}
	s.idle[1] = i
}

// unlist removes a source from the idle list.
func (s *shard) unlist(i int32) {
	prev, late := s.entries[i].prev, s.entries[i].late
	if prev == none {
		s.idle[0] = late
	} else {
		s.entries[prev].late = late
	}
	if late == none {
		s.idle[1] = prev
	} else {
		s.entries[late].prev = prev
	}
}

// A stripe holds a part of the counted connections. Each has its whole address, so that the prefixes of sources can
// change. The stripe of a connection does not depend on the prefixes.
type stripe struct {
	mu   sync.Mutex  // locked before a shard's mu
	held []*holdings // never shrinks; an Entry is an index into all of them
	used int32       // how many holdings were ever used, from the first one on
	free int32       // the first free holding among them
	_    [128]byte   // its own cache lines
}

// holdings are allocated at a time: as many as fill a size class of the runtime, 1 KiB.
type holdings [51]holding

// A holding is one connection. Resting connections have such a struct too, so it takes only
// 20 bytes.
type holding struct {
	of    [16]byte // the whole address, or the number of the user; the next free holding, if this one is free
	place uint32   // in the table, with ofUnix; 0 if the holding is free
}

// ofUnix marks the connection of a unix socket. It is above every place: the largest table has places of 26 bits.
const ofUnix = 1 << 31

// key returns the key that the connection is counted under, without the hash.
func (h *holding) key() key {
	return key{hi: binary.BigEndian.Uint64(h.of[:8]), lo: binary.BigEndian.Uint64(h.of[8:]), unix: h.place&ofUnix != 0}
}

// inTable returns the connection's place in the table.
func (h *holding) inTable() uint32 { return h.place &^ ofUnix }

// move changes the connection's place in the table.
func (h *holding) move(place uint32) { h.place = h.place&ofUnix | place }

// at returns the holding of an index below used.
func (p *stripe) at(i int32) *holding {
	const each = int32(len(holdings{}))
	return &p.held[i/each][i%each]
}

// all yields the connections. The caller holds p.mu.
func (p *stripe) all() iter.Seq[*holding] {
	return func(yield func(*holding) bool) {
		for i := range p.used {
			if h := p.at(i); h.place > 0 && !yield(h) {
				return
			}
		}
	}
}

// hold takes a holding for a connection. The caller holds p.mu.
func (p *stripe) hold(k key, place uint32) int32 {
	i := p.free
	if i == none {
		i = p.used
		if int(i) == len(p.held)*len(holdings{}) {
			p.held = append(p.held, new(holdings))
		}
		p.used++
	} else {
		p.free = int32(binary.BigEndian.Uint32(p.at(i).of[:]))
	}
	h := p.at(i)
	binary.BigEndian.PutUint64(h.of[:8], k.hi)
	binary.BigEndian.PutUint64(h.of[8:], k.lo)
	if h.place = 0; k.unix {
		h.place = ofUnix
	}
	h.move(place)
	return i
}

// letGo returns the place of the connection that had a holding, or 0 if the holding is free. Then the caller has
// given it back twice: that is a bug, and must not cost other sources. The caller holds p.mu.
func (p *stripe) letGo(i int32) (place uint32) {
	if i >= p.used || p.at(i).place == 0 {
		return 0
	}
	h := p.at(i)
	place = h.inTable()
	*h = holding{}
	binary.BigEndian.PutUint32(h.of[:], uint32(p.free))
	p.free = i
	return place
}
