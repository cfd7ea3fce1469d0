package limit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/source"
)

var (
	// ErrSourceConnections: the source has as many connections as one may have.
	ErrSourceConnections = errors.New("connection limit of the source reached")
	// ErrSourceRate: the source's connections come faster than they may.
	ErrSourceRate = errors.New("connection rate limit of the source reached")
	// ErrSources: the table is full of sources that have connections.
	ErrSources = errors.New("table of sources full")
)

// ErrConfig is wrapped by the error of [NewSources] when a field of [SourcesConfig]
// makes no sense.
var ErrConfig = errors.New("invalid limit configuration")

// SourcesConfig sets up [Sources]. The zero value limits nothing.
type SourcesConfig struct {
	// Connections is how many one source may have at once, 0 for any number.
	Connections int
	// PerSecond is how many of one source may come a second, 0 for any number, and
	// Burst how many at once after a time without; 0 means as many as a second gives.
	PerSecond float64
	Burst     int
	// PrefixV4 and PrefixV6 define one source: all addresses with the same so many bits.
	// Defaults: 32, 64.
	PrefixV4, PrefixV6 int
	// Entries bounds the table: how many sources are remembered, with 56 bytes each, and a
	// fifth more for chance; a connection takes 20 bytes besides. A source with connections
	// is never forgotten; one without is when another needs its place, the longest unseen
	// first. As many as there may be connections is enough never to refuse a source for want
	// of a place. Default 65,536.
	Entries int
}

const (
	defaultEntries = 1 << 16
	shards         = 64
)

// Sources counts connections by where they come from: those of TCP by prefixes of their
// addresses, those of unix sockets by users. The memory that it takes is bounded whatever
// comes, and grows to that bound only as it is needed.
type Sources struct {
	rules   atomic.Pointer[rules]
	entries int
	table   atomic.Pointer[table] // changed with all stripes locked
	seed    maphash.Seed
	stripes [shards]stripe
}

// rules are the part that may be changed.
type rules struct {
	connections int
	pace        *interval
}

// An Entry is the place of one connection: a number, so that a caller that has many needs little. 0 is none.
type Entry uint32 // 1 + index<<6 + stripe

// NewSources returns a table of no sources.
func NewSources(cfg SourcesConfig) (*Sources, error) {
	setDefault(&cfg.Entries, defaultEntries)
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
	s.Set(cfg.Connections, cfg.PerSecond, cfg.Burst)
	return s, nil
}

func setDefault(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

// Set changes the limits of sources. Connections beyond a lower number stay.
func (s *Sources) Set(connections int, perSecond float64, burst int) {
	s.rules.Store(&rules{connections: max(connections, 0), pace: newInterval(perSecond, burst)})
}

// Admit counts a connection of a source, or returns the reason that it may not come:
// [ErrSourceConnections], [ErrSourceRate] or [ErrSources], and [source.ErrUnknown] if its
// source is not known. The caller gives an entry back by Leave when the connection is over.
func (s *Sources) Admit(src source.Source, now int64) (Entry, error) {
	if !src.Known() {
		return 0, source.ErrUnknown
	}
	k := keyOf(src)
	at := maphash.Comparable(s.seed, k) % shards
	p := &s.stripes[at]
	p.mu.Lock()
	defer p.mu.Unlock()
	place, err := s.table.Load().admit(k, s.rules.Load(), now)
	if err != nil {
		return 0, err
	}
	return Entry(1 + uint32(p.hold(k, place))<<6 + uint32(at)), nil
}

// Adopt counts a connection of a source that is there already, also beyond the limits, which it does not use the rate of, and also where the table has more
// sources than it may. It returns no entry for a source that is not known. The caller gives an entry back by Leave when the connection is over.
func (s *Sources) Adopt(src source.Source, now int64) Entry {
	if !src.Known() {
		return 0
	}
	k := keyOf(src)
	at := maphash.Comparable(s.seed, k) % shards
	p := &s.stripes[at]
	p.mu.Lock()
	defer p.mu.Unlock()
	return Entry(1 + uint32(p.hold(k, s.table.Load().adopt(k, now)))<<6 + uint32(at))
}

// Leave gives an entry back, once. It does nothing for none.
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

// SetPrefix changes the definition of one source, as PrefixV4 and PrefixV6 of [SourcesConfig],
// at a time of the clock of Admit. Connections count under their new prefixes from then on,
// and those beyond the limit of one stay. The used rates of sources count in the larger one
// that they are parts of now; of one that is taken apart, each source that has a connection
// may have used all of it. An error wraps [ErrConfig], and nothing has changed. No client is
// admitted meanwhile: about a millisecond with 10,000 connections (BenchmarkSetPrefix).
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

// A key is the common part of all connections of one source.
type key struct {
	hi, lo uint64 // of an address as one of IPv6; of a user, lo is the number
	hash   uint32
	unix   bool
}

// keyOf returns that of a source which is known, with all of its address, and without the
// hash.
func keyOf(src source.Source) key {
	if peer, ok := src.Credentials(); ok {
		return key{unix: true, lo: uint64(peer.UID)}
	}
	b := src.AddrPort().Addr().As16()
	return key{hi: binary.BigEndian.Uint64(b[:8]), lo: binary.BigEndian.Uint64(b[8:])}
}

// SourcesStats is the present contents of a table, and its counters.
type SourcesStats struct {
	Sources     int   // that are remembered
	Connections int   // of all of them
	Forgotten   int64 // sources, to make room for others, before their used rate was over
	Refused     int64 // connections, by ErrSources
}

// Stats looks through the table.
func (s *Sources) Stats() (sum SourcesStats) {
	t := s.table.Load()
	for i := range t.shards {
		t.shards[i].add(&sum)
	}
	return sum
}
