package health

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/source"
)

// A Source is the origin of a client: a prefix of its address, a user of a unix socket, or a substitute if the origin was
// not looked up. A client may have caused a failure itself ([Rejected], [Silent]). While other sources are served, one
// source alone can neither eject an endpoint nor open a breaker by such failures, see [OutlierMonitor.ReportFrom].
type Source uint64

const (
	// UnsampledSource: the connection does not belong to the sample, and its origin is unknown.
	UnsampledSource Source = iota
	// NoSource: the connection belongs to the sample, and no client has caused its outcome.
	NoSource
	// Unnamed is the one source of all clients with unknown origin.
	Unnamed

	// named is set in all other sources.
	named Source = 1 << 63
)

// site is the least number of bits that the addresses of an IPv6 site have in common.
const site = 48

// sourceSeed differs in each process, so that no client can find addresses that collide with
// another client's.
var sourceSeed = maphash.MakeSeed()

// SourceOf returns the source of a client. bits are the lengths of the prefix that makes one
// source: the first for IPv4, the second for IPv6. 0 means 32 and 64. For IPv6 no more than 48
// bits count, because one site may have a /48 (RFC 6177): one customer must not be several
// witnesses. All clients of a user of a unix socket are one source.
func SourceOf(src source.Source, bits [2]int) Source {
	if peer, ok := src.Credentials(); ok {
		return named | Source(maphash.Comparable(sourceSeed, peer.UID))
	}
	a := src.AddrPort().Addr().WithZone("")
	n := bits[1]
	switch {
	case !a.IsValid():
		return Unnamed
	case a.Is4() && bits[0] == 0:
		n = 32
	case a.Is4():
		n = bits[0]
	case n == 0 || n > site:
		n = site
	}
	p, err := a.Prefix(n)
	if err != nil {
		return Unnamed
	}
	return named | Source(maphash.Comparable(sourceSeed, p))
}

// doubts reports whether the client may have caused the failure of a connection from s.
func (s Source) doubts(o Outcome) bool { return s != NoSource && o.mayBeClient() }

// sources records, for a sample of connections, the outcomes by source. So a verdict can be checked without the source that
// has failed most, by the other sources alone. The zero value is ready, and empty until an outcome is recorded.
//
// In all methods, span is the time for which an outcome counts.
type sources struct{ book atomic.Pointer[samples] }

// samples is the record itself. Its memory is bounded in any case.
type samples struct {
	doubted atomic.Int64 // the time after the last failure that a client may have caused; 0: never

	mu     sync.Mutex          // held only to record an outcome; reports that would have to wait are dropped
	served [tableSize]lastSeen // different sources, the latest first
	table  *table              // nil: no sampled connection has failed within span
}

// A lastSeen is the time at which a source was last served.
type lastSeen struct {
	from Source
	at   int64
}

// tableSize is the number of sources that have an entry. The sources that fail most keep their entries, however many other
// sources come.
const tableSize = 8

// A table counts in turns of a third of a span. The last four turns count: they include everything that a window of a span
// counts.
type table struct {
	width        int64 // of a turn
	turn         int64
	failed       int64         // time of the last failure
	total        tally         // of all sources and of NoSource
	unattributed [turns]uint32 // failures of UnsampledSource that clients may have caused
	entry        [tableSize]entry
}

const turns = 4

// sparse is the largest number of failures of UnsampledSource for each failure in the sample. Beyond it the sample does not
// show their sources.
const sparse = 8

type entry struct {
	from Source // UnsampledSource: the entry is free
	tally
}

// A tally counts the outcomes of connections, in this turn and the previous ones. streak counts the failures since a client
// was last served that clients may have caused.
type tally struct {
	ok, failed [turns]uint32
	streak     uint32
}

// counts are the sums of a tally.
type counts struct{ ok, failed, streak uint32 }

func (t *tally) counts() counts { return counts{total(t.ok[:]), total(t.failed[:]), t.streak} }

// leaveOut subtracts the counts of one source. They may be larger.
func (c *counts) leaveOut(d counts) {
	c.ok, c.failed, c.streak = c.ok-min(c.ok, d.ok), c.failed-min(c.failed, d.failed), c.streak-min(c.streak, d.streak)
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

// note records the outcome of a connection. OK requires that the endpoint has sent something.
func (s *sources) note(from Source, o Outcome, now, span int64) {
	doubt := from.doubts(o)
	if o == Unknown || from == UnsampledSource && !doubt {
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
	case from == UnsampledSource:
		if t := b.at(now, span); t != nil {
			t.unattributed[0]++
		}
	case o.Failed():
		b.fail(from, doubt, now, span)
	default:
		b.serve(from, now, span)
	}
}

// heard records that a client was sent a first byte; its connection is recorded when it ends.
func (s *sources) heard(from Source, now int64) {
	if b := s.open(); from != UnsampledSource && b.mu.TryLock() {
		b.see(from, now)
		b.mu.Unlock()
	}
}

func (s *sources) open() *samples {
	if b := s.book.Load(); b != nil {
		return b
	}
	s.book.CompareAndSwap(nil, new(samples))
	return s.book.Load()
}

// see records that a source was served. The samples are locked.
func (b *samples) see(from Source, now int64) {
	last := len(b.served) - 1
	if i := slices.IndexFunc(b.served[:], func(g lastSeen) bool { return g.from == from }); i >= 0 {
		last = i
	}
	copy(b.served[1:last+1], b.served[:last])
	b.served[0] = lastSeen{from, now}
}

// serve records a connection that succeeded. The samples are locked.
func (b *samples) serve(from Source, now, span int64) {
	b.see(from, now)
	t := b.at(now, span)
	if t == nil {
		return
	}
	t.total.ok[0]++
	t.total.streak = 0
	for i := range t.entry {
		t.entry[i].streak = 0
	}
	if e := t.find(from, false); e != nil {
		e.ok[0]++
	}
}

// fail records a connection that failed. The samples are locked.
func (b *samples) fail(from Source, doubt bool, now, span int64) {
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
		e.streak++
		t.total.streak++
	}
}

func turnWidth(span int64) int64 { return max(span/(turns-1), 1) }

// at returns the table, advanced to a time; nil if there is nothing in it. The samples are
// locked.
func (b *samples) at(now, span int64) *table {
	t := b.table
	if t == nil || now-t.failed >= span || t.width != turnWidth(span) {
		b.table = nil
		return nil
	}
	for turn := now / t.width; t.turn < turn; t.turn = max(t.turn+1, turn-turns) {
		t.total.next()
		shift(&t.unattributed)
		for i := range t.entry {
			t.entry[i].next()
		}
	}
	return t
}

// find returns the entry of a source. A source without one gets a free entry or, if must is set, the entry of the source
// that has failed least.
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
	if !must && least.from != UnsampledSource {
		return nil
	}
	*least = entry{from: from}
	return least
}

// less reports whether an entry matters less than another one.
func (e *entry) less(than *entry) bool {
	if e.from == UnsampledSource || than.from == UnsampledSource {
		return e.from == UnsampledSource && than.from != UnsampledSource
	}
	return total(e.failed[:]) < total(than.failed[:])
}

// few is the number of sources that a verdict leaves out at most.
const few = 4

// streakOfFew reports whether a streak of failures would be shorter than need without the failures of a few sources, while
// other sources are served. A source that was served lately is left out only if it has failed most. sure is the number of
// failures that no client can have caused.
func (s *sources) streakOfFew(sure, need int32, now, span int64) bool {
	return s.ofFew(now, span, func(e *entry) uint32 { return e.streak }, func(b *samples, e *entry) bool {
		return !slices.ContainsFunc(b.served[:], func(g lastSeen) bool { return g.from == e.from && now-g.at < span })
	}, func(rest *counts) bool { return int64(rest.streak)+int64(sure) < int64(need) })
}

// shareOfFew reports whether less than percent of the connections would fail without the connections of a few sources, while
// other sources are served. A source that fails less than percent itself is left out only if it has failed most.
func (s *sources) shareOfFew(percent float64, now, span int64) bool {
	return s.ofFew(now, span, func(e *entry) uint32 { return total(e.failed[:]) }, func(_ *samples, e *entry) bool {
		c := e.counts()
		return tooMany(uint64(c.ok), uint64(c.failed), percent, 1)
	}, func(rest *counts) bool {
		ok := max(rest.ok, 1) // the table may be younger than the connection that was served
		return float64(rest.failed)*100 < percent*float64(ok+rest.failed)
	})
}

// ofFew reports whether a few sources have caused the failures that failures counts, while other sources are served. It
// leaves out the source that has failed most, then others that are suspect, until the rest is harmless.
// Failures with a source that is not known yet count as one source's.
func (s *sources) ofFew(now, span int64, failures func(*entry) uint32, suspect func(*samples, *entry) bool, harmless func(rest *counts) bool) bool {
	b := s.suspects(now, span)
	if b == nil {
		return false
	}
	defer b.mu.Unlock()
	t := b.at(now, span)
	if t == nil || t.unknown(failures) {
		return b.others(now, span)
	}
	rest, left := t.total.counts(), make([]Source, 0, few)
	for len(left) < few {
		var worst *entry
		for i := range t.entry {
			e := &t.entry[i]
			if n := failures(e); n > 0 && !slices.Contains(left, e.from) && (worst == nil || n > failures(worst)) && (len(left) == 0 || suspect(b, e)) {
				worst = e
			}
		}
		if worst == nil {
			break
		}
		rest.leaveOut(worst.counts())
		if left = append(left, worst.from); !b.others(now, span, left...) {
			break
		}
		if harmless(&rest) {
			return true
		}
	}
	return false
}

// contained reports whether clients may have caused all failures, fewer sources than have entries have failed, and from is none
// of them. Failures of an earlier span count as long as no other came.
func (s *sources) contained(from Source) bool {
	b := s.book.Load()
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.table
	if t == nil {
		return true
	}
	failures, sum, free := func(e *entry) uint32 { return total(e.failed[:]) }, uint32(0), false
	for i := range t.entry {
		n := failures(&t.entry[i])
		if n > 0 && t.entry[i].from == from {
			return false
		}
		sum, free = sum+n, free || n == 0
	}
	return free && sum == total(t.total.failed[:]) && !t.unknown(failures)
}

// unknown reports whether the sample does not show the sources of the failures that failures counts.
func (t *table) unknown(failures func(*entry) uint32) bool {
	all := uint32(0)
	for i := range t.entry {
		all += failures(&t.entry[i])
	}
	return all == 0 || total(t.unattributed[:]) > sparse*all
}

// suspects returns the samples, locked, or nil if no client may have caused a failure.
func (s *sources) suspects(now, span int64) *samples {
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

// others reports whether a source besides these was served. The samples are locked.
func (b *samples) others(now, span int64, than ...Source) bool {
	return slices.ContainsFunc(b.served[:], func(g lastSeen) bool {
		return !slices.Contains(than, g.from) && g.from != UnsampledSource && now-g.at < span
	})
}

// spares reports whether to ignore a failure that would decide alone: its client may have caused it, and other sources are
// served.
func (s *sources) spares(from Source, o Outcome, now, span int64) bool {
	b := s.book.Load()
	if b == nil || !from.doubts(o) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.others(now, span, from)
}

// forget resets the failures, but not the served sources.
func (s *sources) forget() {
	if b := s.book.Load(); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.table = nil
		b.doubted.Store(0)
	}
}

// A blame counts events by the client's source, if it is known. It keeps the sources with the most events, however many
// sources there are (Misra and Gries, 1982; Metwally et al., "Space-Saving", 2005).
type blame struct {
	mu    sync.Mutex
	all   int64
	named [4]struct {
		from  Source
		count int64
	}
}

// note counts an event. It ignores UnsampledSource, and any event for which it would have to
// wait.
func (b *blame) note(from Source) {
	if from == UnsampledSource || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	b.all++
	least := &b.named[0]
	for i := range b.named {
		n := &b.named[i]
		if n.from == from {
			n.count++
			return
		}
		if n.count < least.count {
			least = n
		}
	}
	least.from = from
	least.count++ // adds to the count of the replaced source: counts may be too high, but not too low
}

// worst returns the source with the most events and an upper bound of its share. If there are
// no events, it returns UnsampledSource.
func (b *blame) worst() (from Source, part float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := int64(0)
	for _, n := range b.named {
		if n.count > most {
			from, most = n.from, n.count
		}
	}
	return from, float64(most) / float64(max(b.all, 1))
}

func (b *blame) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = 0
	clear(b.named[:])
}

// oneSource reports whether most events may come from one source while other sources are served.
func (b *blame) oneSource(m *OutlierMonitor, now int64) bool {
	from, part := b.worst()
	return from == UnsampledSource || part > 0.75 && m.ServesOthers(from, now)
}
