package limit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/source"
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
	// PrefixV4 and PrefixV6 say what is one source: all addresses with the same so
	// many bits. Defaults: 32, 64.
	PrefixV4, PrefixV6 int
	// Entries bounds the table: how many sources are remembered, with 56 bytes
	// each, and a fifth more for chance. A source with connections is never forgotten; one without is when another
	// needs its place, the longest unseen first. As many as there may be connections is
	// enough never to refuse a source for want of a place. Default 65,536.
	Entries int
}

const (
	defaultEntries = 1 << 16
	shards         = 64
)

// Sources counts connections by where they come from: those of TCP by prefixes of their
// addresses, those of unix sockets by users. The memory that it takes is bounded whatever comes, and grows to that bound only as it is needed.
type Sources struct {
	v4, v6 int
	rules  atomic.Pointer[rules]
	seed   maphash.Seed
	shards [shards]shard
}

// rules are what may be changed.
type rules struct {
	connections int
	pace        *pace
}

// An Entry is the place of one connection in the table. The zero value is none.
type Entry struct{ place uint32 } // 1 + index<<6 + shard

// NewSources returns a table of no sources.
func NewSources(cfg SourcesConfig) (*Sources, error) {
	setDefault(&cfg.PrefixV4, 32)
	setDefault(&cfg.PrefixV6, 64)
	setDefault(&cfg.Entries, defaultEntries)
	switch {
	case cfg.PrefixV4 < 1 || cfg.PrefixV4 > 32 || cfg.PrefixV6 < 1 || cfg.PrefixV6 > 128:
		return nil, fmt.Errorf("limit: %w: source prefixes of %d and %d bits; write 1 to 32 and 1 to 128", ErrConfig, cfg.PrefixV4, cfg.PrefixV6)
	case cfg.Entries < 0 || cfg.Entries > 1<<25:
		return nil, fmt.Errorf("limit: %w: %d entries; write at most %d", ErrConfig, cfg.Entries, 1<<25)
	}
	s := &Sources{v4: cfg.PrefixV4, v6: cfg.PrefixV6, seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].init(share(cfg.Entries))
	}
	s.Set(cfg.Connections, cfg.PerSecond, cfg.Burst)
	return s, nil
}

func setDefault(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

// share is how many of so many entries a shard gets: its part, and six standard
// deviations of what chance gives it more.
func share(entries int) int {
	part := (entries + shards - 1) / shards
	return part + 4 + int(6*math.Sqrt(float64(part)))
}

// Set changes what sources may do. Connections beyond a lower number stay.
func (s *Sources) Set(connections int, perSecond float64, burst int) {
	s.rules.Store(&rules{connections: max(connections, 0), pace: newPace(perSecond, burst)})
}

// Admit counts a connection of a source, or says why it may not come:
// [ErrSourceConnections], [ErrSourceRate] or [ErrSources], and [source.ErrUnknown] if it is
// not known where it comes from. Whoever got an entry gives it back by Leave when the
// connection is over.
func (s *Sources) Admit(of source.Source, now int64) (Entry, error) {
	if !of.Known() {
		return Entry{}, source.ErrUnknown
	}
	k := s.key(of)
	hash := maphash.Comparable(s.seed, k)
	at := hash % shards
	k.hash = uint32(hash / shards)
	i, err := s.shards[at].admit(k, s.rules.Load(), now)
	if err != nil {
		return Entry{}, err
	}
	return Entry{place: 1 + uint32(i)<<6 + uint32(at)}, nil
}

// Leave gives an entry back, once. It does nothing for the zero Entry.
func (s *Sources) Leave(e Entry) {
	if e.place > 0 {
		s.shards[(e.place-1)%shards].leave(int32((e.place - 1) >> 6))
	}
}

// A key is what is the same for all connections of one source.
type key struct {
	hi, lo uint64 // of an address as one of IPv6; of a user, lo is the number
	hash   uint32
	unix   bool
}

// key returns that of a source which is known, without the hash.
func (s *Sources) key(of source.Source) key {
	if peer, ok := of.Credentials(); ok {
		return key{unix: true, lo: uint64(peer.UID)}
	}
	addr := of.AddrPort().Addr()
	b := addr.As16()
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	keep := s.v6
	if addr.Is4() {
		keep = 96 + s.v4
	}
	if keep <= 64 {
		return key{hi: hi >> (64 - keep) << (64 - keep)}
	}
	return key{hi: hi, lo: lo >> (128 - keep) << (128 - keep)}
}

// SourcesStats is what is in a table now, and what became of it.
type SourcesStats struct {
	Sources     int   // that are remembered
	Connections int   // of all of them
	Forgotten   int64 // sources, to make room for others, before what they had used of their rate was over
	Refused     int64 // connections, by ErrSources
}

// Stats looks through the table.
func (s *Sources) Stats() (sum SourcesStats) {
	for i := range s.shards {
		s.shards[i].add(&sum)
	}
	return sum
}
