package limit

import (
	"fmt"
	"hash/maphash"
	"math"
)

// A table is sources by prefixes of one length.
type table struct {
	v4, v6 int
	seed   maphash.Seed
	shards [shards]shard
}

// newTable returns a table of no sources, or an error about the prefixes; 0 is the default.
func (s *Sources) newTable(v4, v6 int) (*table, error) {
	setDefault(&v4, 32)
	setDefault(&v6, 64)
	if v4 < 1 || v4 > 32 || v6 < 1 || v6 > 128 {
		return nil, fmt.Errorf("limit: %w: source prefixes of %d and %d bits; write 1 to 32 and 1 to 128", ErrConfig, v4, v6)
	}
	t := &table{v4: v4, v6: v6, seed: s.seed}
	for i := range t.shards {
		t.shards[i].init(share(s.entries))
	}
	return t, nil
}

// share returns the number of entries of a shard: its part of all entries, and six standard
// deviations for chance.
func share(entries int) int {
	part := (entries + shards - 1) / shards
	return part + 4 + int(6*math.Sqrt(float64(part)))
}

// keep is how many bits of a key make a source. Those of IPv4 are mapped into IPv6, also when
// their ends are cut off.
func (t *table) keep(k key) int {
	switch {
	case k.unix:
		return 128
	case k.hi == 0 && k.lo>>32 == 0xffff:
		return 96 + t.v4
	}
	return t.v6
}

// of returns the key of the source that a key with more of the address belongs to, with its
// hash, and the shard that it is in.
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

// admit counts a connection of a source, or says why it may not come. Its place is not 0.
func (t *table) admit(k key, r *rules, now int64) (place uint32, err error) {
	cut, at := t.of(k)
	i, err := t.shards[at].admit(cut, r, now)
	if err != nil {
		return 0, err
	}
	return placeOf(i, at), nil
}

// adopt counts a connection of a source, whether or not there is room.
func (t *table) adopt(k key, now int64) (place uint32) {
	cut, at := t.of(k)
	s := &t.shards[at]
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(cut)
	if i == none {
		i = s.place(cut, now, math.MaxInt32)
	}
	s.count(i)
	return placeOf(i, at)
}

func placeOf(i int32, at uint64) uint32 { return 1 + uint32(i)<<6 + uint32(at) }

// leave takes a connection off the source at a place.
func (t *table) leave(place uint32) {
	t.shards[(place-1)%shards].leave(int32((place - 1) >> 6))
}

// at returns the source at a place. The caller has the table alone.
func (t *table) at(place uint32) *record {
	return &t.shards[(place-1)%shards].entries[(place-1)>>6]
}

// merge copies the used rates of those sources of another table that are parts of sources
// here, those that were seen last as the last. The caller has the table alone.
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

// add copies one of them: its used rate counts as used here, up to the most that a source can
// have used.
func (t *table) add(from *table, e *record, p *interval, now int64) {
	if e.due <= now || t.keep(e.key) > from.keep(e.key) {
		return
	}
	cut, at := t.of(e.key)
	shard := &t.shards[at]
	i := shard.find(cut)
	if i == none {
		if i = shard.place(cut, now, shard.most); i == none {
			return // they all have connections, and are counted by these
		}
	}
	r := &shard.entries[i]
	r.due = max(r.due, now) + (e.due - now)
	if p != nil {
		r.due = min(r.due, now+p.slip+p.each)
	}
}

// count counts a connection that has a place in another table, whether or not there is room,
// and returns its place here. The caller is alone.
func (t *table) count(k key, from *table, place uint32, now int64) uint32 {
	cut, at := t.of(k)
	shard := &t.shards[at]
	i := shard.find(cut)
	if i == none {
		i = shard.place(cut, now, math.MaxInt32)
	}
	if t.keep(k) > from.keep(k) { // it may have used the rate of its source
		shard.entries[i].due = max(shard.entries[i].due, from.at(place).due)
	}
	shard.count(i)
	return placeOf(i, at)
}
