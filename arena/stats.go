package arena

import "sync/atomic"

// Purpose is the use of a slot, in statistics.
type Purpose uint8

// The purposes.
const (
	Residue  Purpose = iota // bytes that a slow destination left behind
	Read                    // read buffers of loops
	Other                   // anything else, and every larger number
	Purposes = iota         // the number of purposes
)

// String returns the purpose in one word.
func (p Purpose) String() string {
	return [Purposes]string{"residue", "read", "other"}[min(p, Other)]
}

// Usage counts the slots for one purpose.
type Usage struct {
	Gets    int64 // slots that were taken out
	Out     int64 // slots that are out
	Bytes   int64 // bytes of the slots that are out
	Refused int64 // Gets that ended with ErrBudget or ErrClosed
}

func (u Usage) plus(v Usage) Usage {
	return Usage{u.Gets + v.Gets, u.Out + v.Out, u.Bytes + v.Bytes, u.Refused + v.Refused}
}

// LocalStats are the counts of a Local.
type LocalStats struct {
	ByPurpose [Purposes]Usage
	Stale     int64 // handles that Bytes and Put refused
}

// Stats are an arena's counts and its budget.
type Stats struct {
	LocalStats       // the sum of the Locals
	Budget     int64 // bytes that all Locals together can have
	Used       int64 // bytes that they have now, in whole chunks: never more than Budget
	Peak       int64 // the most bytes that they ever had
	Mapped     int64 // bytes of the mapping
	Huge       int64 // bytes of the mapping that were in huge pages when it was made
}

// A tally has the counts of a Local for its owner. No other goroutine reads it.
type tally struct {
	LocalStats
	unpublished int // operations since the last Flush
}

// often is the number of operations after which a Local publishes its counts.
const often = 64

func (l *Local) got(p Purpose, c class) {
	u := &l.tally.ByPurpose[p]
	u.Gets++
	u.Out++
	u.Bytes += int64(c.bytes())
	l.count()
}

func (l *Local) gave(p Purpose, c class) {
	u := &l.tally.ByPurpose[p]
	u.Out--
	u.Bytes -= int64(c.bytes())
	l.count()
}

func (l *Local) refused(p Purpose) {
	l.tally.ByPurpose[p].Refused++
	l.count()
}

func (l *Local) staled() error {
	l.tally.Stale++
	l.count()
	return ErrStale
}

func (l *Local) count() {
	if l.tally.unpublished++; l.tally.unpublished >= often {
		l.Flush()
	}
}

// out returns how many slots are out. Only the owner calls it.
func (l *Local) out() (n int64) {
	for _, u := range l.tally.ByPurpose {
		n += u.Out
	}
	return n
}

// Flush publishes the counts of the Local for Stats. This happens every 64 operations anyway; a loop flushes
// before it sleeps. (Inlining Flush would make Get and Put a tenth slower.)
//
//go:noinline
func (l *Local) Flush() {
	l.tally.unpublished = 0
	for p, u := range l.tally.ByPurpose {
		l.published.by[p].store(u)
	}
	l.published.stale.Store(l.tally.Stale)
}

// published is a tally that any goroutine may read. Only its owner writes it, now and then, so it has cache
// lines of its own: see BenchmarkNeighbours.
type published struct {
	_     [128]byte
	by    [Purposes]publishedUsage
	stale atomic.Int64
	_     [128]byte
}

type publishedUsage struct{ gets, out, bytes, refused atomic.Int64 }

func (p *publishedUsage) store(u Usage) {
	p.gets.Store(u.Gets)
	p.out.Store(u.Out)
	p.bytes.Store(u.Bytes)
	p.refused.Store(u.Refused)
}

func (p *publishedUsage) load() Usage {
	return Usage{p.gets.Load(), p.out.Load(), p.bytes.Load(), p.refused.Load()}
}

// Stats returns the Local's counts at its last Flush. It may be called by any goroutine at any time. The
// figures of one purpose may come from two successive flushes.
func (l *Local) Stats() LocalStats {
	s := LocalStats{Stale: l.published.stale.Load()}
	for p := range s.ByPurpose {
		s.ByPurpose[p] = l.published.by[p].load()
	}
	return s
}

// Stats returns the sums of the Locals, and the arena's own figures. Budget, Used and Peak are exact at any
// time, the rest only as exact as Local.Stats.
func (a *Arena) Stats() Stats {
	s := Stats{Mapped: a.mapped, Huge: a.huge}
	for i := range a.locals {
		t := a.locals[i].Stats()
		s.Stale += t.Stale
		for p := range s.ByPurpose {
			s.ByPurpose[p] = s.ByPurpose[p].plus(t.ByPurpose[p])
		}
	}
	for _, d := range a.depots {
		now, peak := d.used()
		s.Budget += int64(d.chunks) * ChunkSize
		s.Used += now
		s.Peak += peak
	}
	return s
}
