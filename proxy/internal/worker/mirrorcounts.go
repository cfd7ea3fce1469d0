package worker

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// mirrorReasons are the reasons for which a mirror has ended, or a session that was to have one has had none.
var mirrorReasons = []string{
	relay.MirrorComplete.String(), relay.MirrorBehind.String(), relay.MirrorLate.String(), relay.MirrorConnect.String(),
	relay.MirrorReset.String(), relay.MirrorPipe.String(), relay.MirrorCut.String(), relay.MirrorError.String(),
	MirrorNoEndpoint, MirrorFull, MirrorDescriptors, MirrorOffLoop,
}

// numMirrorReasons is how many there are.
const numMirrorReasons = 12

// MirrorCounts are the mirrors of a listener's sessions. They are safe for concurrent use.
type MirrorCounts struct {
	running                               atomic.Int64
	ended                                 [numMirrorReasons]atomic.Int64
	teed, copied, undelivered, throwAways atomic.Int64
	unanswered, silent                    atomic.Int64
	reset                                 atomic.Pointer[MirrorTotals] // those at the last Reset; nil: there was none
}

// MirrorTotals are the values of [MirrorCounts].
type MirrorTotals struct {
	// Running is how many there are now, and Ended counts those that have ended, or were not to be had, by reason.
	Running int64
	Ended   map[string]int64
	// Teed and Copied are the bytes that mirrors' endpoints took, Undelivered those that they did not take,
	// and Answered those that they answered, which were thrown away. Of mirrors that run they are counted
	// about every second.
	Teed, Copied, Undelivered, Answered int64
	// Unanswered is how many of those that were complete had no byte of an answer, and Silent how many of the last ones
	// in a row.
	Unanswered, Silent int64
	// Since is the last Reset; zero: there was none, or they are totals since the listener began.
	Since time.Time
}

// Skip counts a session that was to have a mirror and has none.
func (c *MirrorCounts) Skip(reason string) {
	if i := slices.Index(mirrorReasons, reason); i >= 0 {
		c.ended[i].Add(1)
	}
}

func (c *MirrorCounts) end(reason string) {
	c.running.Add(-1)
	c.Skip(reason)
}

// answer counts whether the endpoint of a mirror that was complete has answered anything. The kernel of one that is
// frozen takes everything, too.
func (c *MirrorCounts) answer(res *relay.MirrorResult) {
	switch {
	case res.Answered > 0:
		c.silent.Store(0)
	case res.Reason == relay.MirrorComplete:
		c.unanswered.Add(1)
		c.silent.Add(1)
	}
}

// add counts the bytes of a mirror beyond those that were counted before.
func (c *MirrorCounts) add(res, before *relay.MirrorResult) {
	for _, of := range [...]struct {
		sum         *atomic.Int64
		now, before int64
	}{
		{&c.teed, res.Teed, before.Teed},
		{&c.copied, res.Copied, before.Copied},
		{&c.undelivered, res.Undelivered, before.Undelivered},
		{&c.throwAways, res.Answered, before.Answered},
	} {
		if of.now != of.before {
			of.sum.Add(of.now - of.before)
		}
	}
}

// mirrorCensus is how often the bytes of mirrors that run are counted.
const mirrorCensus = time.Second

// A censusTimer is a worker whose mirrors are counted from time to time, while there are any.
type censusTimer worker

// Expired implements [loop.Expirer].
func (t *censusTimer) Expired(*loop.Timer) { (*worker)(t).countMirrors((*worker)(t).mirrors.number) }

// countMirrors counts the bytes of so many mirrors, of which those that were counted come last, some in each turn.
func (w *worker) countMirrors(left int) {
	for began := time.Now(); left > 0 && w.mirrors.number > 0; left-- {
		if time.Since(began) > turnTime {
			w.post(func() { w.countMirrors(left) })
			return
		}
		m := w.mirrors.ring.next
		m.count(m.Result())
		w.mirrors.remove(m)
		w.mirrors.add(m)
	}
	if w.mirrors.number > 0 {
		w.loop.Arm(&w.mirrors.census, (*censusTimer)(w), mirrorCensus)
	}
}

// count counts the bytes of the mirror that were not yet.
func (m *mirroring) count(res relay.MirrorResult) {
	m.of.Counts.add(&res, &m.counted)
	m.counted = res
}

// Totals returns the values now. every has reasons that did not occur as well.
func (c *MirrorCounts) Totals(every bool) MirrorTotals {
	t := MirrorTotals{
		Running: c.running.Load(), Ended: make(map[string]int64),
		Teed: c.teed.Load(), Copied: c.copied.Load(), Undelivered: c.undelivered.Load(), Answered: c.throwAways.Load(),
		Unanswered: c.unanswered.Load(), Silent: c.silent.Load(),
	}
	for i, reason := range mirrorReasons {
		if n := c.ended[i].Load(); n > 0 || every {
			t.Ended[reason] = n
		}
	}
	return t
}

// Reset has SinceReset count from now on. Mirrors that run are counted when they end, and the bytes of theirs that were
// not counted yet.
func (c *MirrorCounts) Reset() {
	t := c.Totals(true)
	t.Since = time.Now()
	c.reset.Store(&t)
}

// SinceReset returns the values since the last Reset, without reasons that did not occur.
func (c *MirrorCounts) SinceReset() MirrorTotals {
	before := c.reset.Load()
	t := c.Totals(false)
	if before == nil {
		return t
	}
	t.Since = before.Since
	for reason := range t.Ended {
		if t.Ended[reason] -= before.Ended[reason]; t.Ended[reason] == 0 {
			delete(t.Ended, reason)
		}
	}
	t.Teed, t.Copied = t.Teed-before.Teed, t.Copied-before.Copied
	t.Unanswered -= before.Unanswered
	t.Undelivered, t.Answered = t.Undelivered-before.Undelivered, t.Answered-before.Answered
	return t
}
