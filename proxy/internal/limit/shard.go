package limit

import "sync"

// A shard is a part of a table of sources: a hash table with chains, in which all is
// numbers, so that it neither allocates, once it has grown, nor gives the collector
// anything to look at. Sources without connections are in a list, the one that was seen
// last at its end.
type shard struct {
	mu      sync.Mutex
	most    int       // entries there may be
	heads   []int32   // of chains, by hash: a power of two, or none
	entries []record  // never shrinks
	idle    [2]int32  // first and last of the list
	live    int       // connections
	stats   [2]int64  // forgotten, refused
	_       [128]byte // its own cache lines
}

// A record is a source that is remembered.
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

func (s *shard) init(limit int) {
	s.most = max(limit, 1)
	s.idle = [2]int32{none, none}
}

func (s *shard) admit(k key, r *rules, now int64) (int32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(k)
	if i == none {
		if i = s.place(k, now, s.most); i == none {
			s.stats[1]++
			return none, ErrSources
		}
	}
	e := &s.entries[i]
	if e.live == 0 { // it was seen
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

// leave takes a connection off a source. One that has none is given back for the second time,
// which is a bug of the caller, and must not cost other sources.
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

// place makes an entry for a source, which is idle: a new one while there are fewer than
// most, or that of the source that has been idle for the longest time. It returns none if no
// source is idle.
func (s *shard) place(k key, now int64, limit int) (i int32) {
	switch {
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
		s.forget(i, now)
	}
	head := s.chain(k.hash)
	s.entries[i] = record{key: k, due: now, next: *head}
	*head = i
	s.list(i)
	return i
}

// forget takes an idle source out of the table.
func (s *shard) forget(i int32, now int64) {
	if s.entries[i].due > now {
		s.stats[0]++
	}
	s.unlist(i)
	at := s.chain(s.entries[i].key.hash)
	for *at != i {
		at = &s.entries[*at].next
	}
	*at = s.entries[i].next
}

// grow makes the table twice as large.
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

// list puts a source at the end of the idle ones.
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

// unlist takes a source out of the idle ones.
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

func (s *shard) add(sum *SourcesStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum.Sources += len(s.entries)
	sum.Connections += s.live
	sum.Forgotten += s.stats[0]
	sum.Refused += s.stats[1]
}
