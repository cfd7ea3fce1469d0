package metrics

import (
	"strconv"

	"github.com/penstock/penstock/proxy/admin"
)

// loopFamilies are those with the label loop.
var loopFamilies = []objectFamily[Loop]{
	{counter("penstock_loop_overruns_total", "Turns that used a millisecond of CPU time, with --turn-cpu. Left out without it.", "loop"), func(e *encoder, l *Loop) {
		if l.Measured {
			e.int("", l.Overruns)
		}
	}},
	{histogram("penstock_loop_turn_seconds", "Loop lag: duration of turns, from the return of epoll_wait on. There is no sum.", "loop"), func(e *encoder, l *Loop) { e.powers(l.Turns) }},
	{histogram("penstock_loop_timer_late_seconds", "Lateness of timers. There is no sum.", "loop"), func(e *encoder, l *Loop) { e.powers(l.Late) }},
}

// powerBounds are the bounds of the buckets that are shown of counts by powers of two of a microsecond, as
// exponents: 16 us to a second.
var powerBounds = [...]int{4, 6, 8, 10, 12, 14, 16, 18, 20}

// filterBounds are those for the calls of filters: 1 us to 65 ms.
var filterBounds = [...]int{0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16}

var powerLabels, filterLabels = powersLabels(powerBounds[:]), powersLabels(filterBounds[:])

func powersLabels(bounds []int) (labels [][2]string) {
	for _, bound := range bounds {
		labels = append(labels, leLabels(float64(int64(1)<<bound)/1e6))
	}
	return labels
}

// powers writes the buckets of times that are counted by powers of two of a microsecond: counts[i] has
// those below 2^i, and not below half of that.
func (e *encoder) powers(counts []int64) { e.powersOf("", powerBounds[:], powerLabels, counts) }

// powersOf is powers with bounds of its own, and with further labels.
func (e *encoder) powersOf(extra string, bounds []int, labels [][2]string, counts []int64) {
	sum, next := int64(0), 0
	for i, bound := range bounds {
		for ; next <= bound && next < len(counts); next++ {
			sum += counts[next]
		}
		e.name("_bucket", extra+labels[i][e.dialect()])
		e.buf = strconv.AppendInt(e.buf, sum, 10)
		e.end()
	}
	for ; next < len(counts); next++ {
		sum += counts[next]
	}
	e.name("_bucket", extra+`,le="+Inf"`)
	e.buf = strconv.AppendInt(e.buf, sum, 10)
	e.end()
}

// answerBounds are those for the first answers of endpoints: 256 us to 4 s.
var answerBounds = [...]int{8, 10, 12, 14, 16, 18, 20, 22}

var answerLabels = powersLabels(answerBounds[:])

// filterTimes writes the histogram of a filter.
func (e *encoder) filterTimes(f *admin.Filter) {
	extra := e.cached("filter", f.Name)
	e.powersOf(extra, filterBounds[:], filterLabels, f.Times)
	e.sumAndCount(extra, float64(f.TimeUs)/1e6, f.Calls)
}

// answers writes the histogram of an endpoint's first answers.
func (e *encoder) answers(p *Endpoint) {
	made := int64(0)
	for _, n := range p.AnswerTimes {
		made += n
	}
	e.powersOf("", answerBounds[:], answerLabels, p.AnswerTimes)
	e.sumAndCount("", p.Answered.Seconds(), made)
}

// sumAndCount writes the end of a histogram.
func (e *encoder) sumAndCount(extra string, seconds float64, n int64) {
	e.name("_sum", extra)
	e.buf = strconv.AppendFloat(e.buf, seconds, 'g', -1, 64)
	e.end()
	e.name("_count", extra)
	e.buf = strconv.AppendInt(e.buf, n, 10)
	e.end()
}
