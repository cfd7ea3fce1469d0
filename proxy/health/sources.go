package health

import (
	"sync"
	"sync/atomic"
)

// sources notes, of a sample of connections, what those of each source came to, so that a
// verdict can be tried once more without the source that has failed most: what is left of
// it is what the others say. The zero value is ready, and knows nothing until something
// is noted.
//
// span is in all its methods how long something counts.
type sources struct{ book atomic.Pointer[book] }

// A book is what is noted. Its memory is bounded whatever comes.
type book struct {
	doubted atomic.Int64 // the time after the last failure that may be a client's doing; 0: never

	mu     sync.Mutex // for as long as it takes to write a line; who would have to wait does without
	served [2]glimpse // two different sources, the latest first
	table  *table     // nil: nothing of the sample has failed within span
}

// A glimpse is when a source was sent a first byte last.
type glimpse struct {
	from Source
	at   int64
}

// tableSize is how many sources are told apart; those that fail most are, whoever else
// comes.
const tableSize = 8

// A table counts in turns of a third of a span, of which the last four count: what a
// window of that length counts is in them.
type table struct {
	width  int64 // of a turn
	turn   int64
	failed int64         // when something has, last
	total  tally         // of all sources and of Nobody
	blind  [turns]uint32 // failures of Anybody that may be clients' doing
	entry  [tableSize]entry
}

const turns = 4

// sparse is how many failures of Anybody there may be for each of the sample. With more of
// them the sample does not tell whose they are.
const sparse = 8

type entry struct {
	from Source // Anybody: it is free
	tally
}

// A tally is what connections came to, in this turn and those before. row counts the failures
// that may be clients' doing since anybody was served.
type tally struct {
	ok, failed [turns]uint32
	row        uint32
}

func (t *tally) sum() (ok, failed uint32) { return sum(&t.ok), sum(&t.failed) }

func sum(n *[turns]uint32) (all uint32) {
	for i := range n {
		all += n[i]
	}
	return all
}

func (t *tally) next() {
	shift(&t.ok)
	shift(&t.failed)
}

// shift begins another turn.
func shift(n *[turns]uint32) {
	copy(n[1:], n[:turns-1])
	n[0] = 0
}

// note notes what a connection came to. An OK has to be one of an endpoint that has sent
// something.
func (s *sources) note(from Source, o Outcome, now, span int64) {
	doubt := from.doubts(o)
	if o == Unknown || from == Anybody && !doubt {
		return
	}
	b := s.open()
	if doubt {
		b.doubted.Store(now + 1)
	}
	if !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	switch {
	case from == Anybody:
		if t := b.at(now, span); t != nil {
			t.blind[0]++
		}
	case o.Failed():
		b.fail(from, doubt, now, span)
	default:
		b.serve(from, now, span)
	}
}

// heard notes that somebody was sent a first byte whose connection is noted when it ends.
func (s *sources) heard(from Source, now int64) {
	if b := s.open(); from != Anybody && b.mu.TryLock() {
		b.see(from, now)
		b.mu.Unlock()
	}
}

func (s *sources) open() *book {
	if b := s.book.Load(); b != nil {
		return b
	}
	s.book.CompareAndSwap(nil, new(book))
	return s.book.Load()
}

// see notes that a source was served. The book is locked.
func (b *book) see(from Source, now int64) {
	if b.served[0].from != from {
		b.served[1] = b.served[0]
	}
	b.served[0] = glimpse{from, now}
}

// serve notes a connection that was well. The book is locked.
func (b *book) serve(from Source, now, span int64) {
	b.see(from, now)
	t := b.at(now, span)
	if t == nil {
		return
	}
	t.total.ok[0]++
	t.total.row = 0
	for i := range t.entry {
		t.entry[i].row = 0
	}
	if e := t.find(from, false); e != nil {
		e.ok[0]++
	}
}

// fail notes a connection that has failed. The book is locked.
func (b *book) fail(from Source, doubt bool, now, span int64) {
	t := b.at(now, span)
	if t == nil {
		t = &table{width: turnWidth(span), turn: now / turnWidth(span)}
		b.table = t
	}
	t.failed = now
	t.total.failed[0]++
	if doubt {
		e := t.find(from, true)
		e.failed[0]++
		e.row++
		t.total.row++
	}
}

func turnWidth(span int64) int64 { return max(span/(turns-1), 1) }

func (g *glimpse) within(now, span int64) bool { return g.from != Anybody && now-g.at < span }

// at returns the table as it is at a time, nil if there is nothing in it. The book is
// locked.
func (b *book) at(now, span int64) *table {
	t := b.table
	if t == nil || now-t.failed >= span || t.width != turnWidth(span) {
		b.table = nil
		return nil
	}
	for turn := now / t.width; t.turn < turn; t.turn = max(t.turn+1, turn-turns) {
		t.total.next()
		shift(&t.blind)
		for i := range t.entry {
			t.entry[i].next()
		}
	}
	return t
}

// find returns the entry of a source, which gets one if there is a free one, or if it must
// that of the source which has failed least.
func (t *table) find(from Source, must bool) *entry {
	least := &t.entry[0]
	for i := range t.entry {
		e := &t.entry[i]
		if e.from == from {
			return e
		}
		if e.less(least) {
			least = e
		}
	}
	if !must && least.from != Anybody {
		return nil
	}
	*least = entry{from: from}
	return least
}

// less reports whether an entry matters less than another one.
func (e *entry) less(than *entry) bool {
	if e.from == Anybody || than.from == Anybody {
		return e.from == Anybody && than.from != Anybody
	}
	_, a := e.sum()
	_, b := than.sum()
	return a < b
}

// rowOfOne reports whether a row of failures, sure of which no client has caused, would be
// shorter than need without those of one source, while others are served.
func (s *sources) rowOfOne(sure, need int32, now, span int64) bool {
	b := s.suspects(now, span)
	if b == nil {
		return false
	}
	defer b.mu.Unlock()
	t := b.at(now, span)
	worst, served := b.worst(t, now, span, func(e *entry) uint32 { return e.row })
	switch {
	case !served:
		return false
	case worst == nil: // whose they are is not known yet
		return true
	}
	return int64(t.total.row-worst.row)+int64(sure) < int64(need)
}

// shareOfOne reports whether the part of the connections that fail would be less than
// percent without those of one source, while others are served.
func (s *sources) shareOfOne(percent float64, now, span int64) bool {
	b := s.suspects(now, span)
	if b == nil {
		return false
	}
	defer b.mu.Unlock()
	t := b.at(now, span)
	worst, served := b.worst(t, now, span, func(e *entry) uint32 { _, n := e.sum(); return n })
	switch {
	case !served:
		return false
	case worst == nil:
		return true
	}
	ok, failed := t.total.sum()
	itsOK, itsFailed := worst.sum()
	ok, failed = max(ok-min(itsOK, ok), 1), failed-itsFailed // the one that was served may be of the time before the table
	return float64(failed)*100 < percent*float64(ok+failed)
}

// suspects returns the book, locked, unless nothing has failed by what may be a client's
// doing.
func (s *sources) suspects(now, span int64) *book {
	b := s.book.Load()
	if b == nil {
		return nil
	}
	if at := b.doubted.Load(); at == 0 || now-(at-1) >= span {
		return nil
	}
	b.mu.Lock()
	return b
}

// worst returns the entry with the most failures as somebody counts them, nil if it is not
// known which that is, and whether another source was served. The book is locked; t may be nil.
func (b *book) worst(t *table, now, span int64, failures func(*entry) uint32) (worst *entry, served bool) {
	all := uint32(0)
	if t != nil {
		for i := range t.entry {
			e := &t.entry[i]
			n := failures(e)
			if all += n; n > 0 && (worst == nil || n > failures(worst)) {
				worst = e
			}
		}
	}
	if worst == nil || sum(&t.blind) > sparse*all {
		return nil, b.others(Anybody, now, span)
	}
	return worst, b.others(worst.from, now, span)
}

// others reports whether a source other than from was served. The book is locked.
func (b *book) others(from Source, now, span int64) bool {
	for i := range b.served {
		if g := &b.served[i]; g.from != from && g.within(now, span) {
			return true
		}
	}
	return false
}

// spares reports whether a failure is to be overlooked where it alone would decide: it may
// be its client's doing, and others are served.
func (s *sources) spares(from Source, o Outcome, now, span int64) bool {
	b := s.book.Load()
	if b == nil || !from.doubts(o) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.others(from, now, span)
}

// forget forgets failures, but not who was served.
func (s *sources) forget() {
	if b := s.book.Load(); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.table = nil
		b.doubted.Store(0)
	}
}
