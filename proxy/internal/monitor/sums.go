package monitor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Counter is a count that never falls, as [Sums.Look] gets it.
type Counter struct {
	Key     any    // comparable; Key and Message are the same in each call of Look
	Message string // of the line that is logged when it rises
	Kind    string // kind of the owner: listener or upstream
	Name    string // name of the owner
	Filter  string // name of the filter if the counter belongs to a filter of the listener, otherwise ""
	Total   int64
	// Unlogged says that the counter is not logged. It is only for [Sums.Recent].
	Unlogged bool
}

// An Explanation explains a [Counter] that has risen.
type Explanation interface {
	// Reasons returns a counter by reason, or nil if the counter has no reasons. The map does not change
	// afterwards.
	Reasons(c *Counter) map[string]int64
	// Attrs returns further attributes of a counter's line, after its increase. If it returns nil, the line has
	// the reasons.
	Attrs(c *Counter, increase map[string]int64) []any
	// Level returns the level of the line for an increase by reason.
	Level(c *Counter, increase map[string]int64) slog.Level
}

// sumFor is the time from one sum to the next.
const sumFor = time.Minute

// Sums logs the increases of counters. It logs an increase at once if the counter was not logged within the last
// minute. Later increases are logged once a minute, together with all others of the same message. A counter that
// has not risen is not mentioned.
type Sums struct {
	log    *slog.Logger
	known  map[sumKey]*sum
	look   uint64
	minute map[string]*minute // by message
}

// A minute is the time from one sum to the next, for the counters of one message.
type minute struct {
	began int64
	lines int // lines that were logged in this minute
}

type sumKey struct {
	key     any
	message string
}

type sum struct {
	Counter                  // as of the last call of Look that had it
	seen    uint64           // number of that call
	logged  int64            // the part of Total that was logged
	reasons map[string]int64 // the counts by reason that were logged
	since   int64            // since when Total may be larger than logged
	quiet   int64            // until when it is not logged at once
	recent  recent
}

// NewSums returns Sums without counters.
func NewSums(log *slog.Logger) *Sums {
	return &Sums{log: log, known: make(map[sumKey]*sum), minute: make(map[string]*minute)}
}

// Look takes the present counters. now is the time of the clock. A counter that is new has risen from 0. If a
// counter is gone, its last known increase is still logged.
func (s *Sums) Look(now int64, counters []Counter, explain Explanation) {
	s.look++
	for i := range counters {
		c := &counters[i]
		key := sumKey{c.Key, c.Message}
		k := s.known[key]
		if k == nil {
			k = &sum{since: now}
			s.known[key] = k
		}
		k.recent.add(now, c.Total-k.Total)
		k.Counter, k.seen = *c, s.look
		if k.Total == k.logged {
			k.since = now
		}
	}
	for key, k := range s.known {
		if k.seen != s.look && (k.Unlogged || k.Total == k.logged) {
			delete(s.known, key)
		}
	}
	s.logRisen(now, explain, false)
}

// Recent returns by how much a counter has risen within about the last minute.
func (s *Sums) Recent(now int64, key any, message string) int64 {
	if k := s.known[sumKey{key, message}]; k != nil {
		return k.recent.sum(now)
	}
	return 0
}

// Flush logs all increases that were not logged, however recent the last lines are. It is called at the end.
func (s *Sums) Flush(now int64, explain Explanation) { s.logRisen(now, explain, true) }

// logRisen logs the increases that are due, or all of them.
func (s *Sums) logRisen(now int64, explain Explanation, all bool) {
	var risen []*sum
	for _, k := range s.known {
		if k.Total > k.logged && !k.Unlogged {
			risen = append(risen, k)
		}
	}
	slices.SortFunc(risen, func(a, b *sum) int {
		return cmp.Or(
			strings.Compare(a.Message, b.Message), cmp.Compare(b.Total-b.logged, a.Total-a.logged),
			strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name),
		)
	})
	for len(risen) > 0 {
		n := slices.IndexFunc(risen, func(k *sum) bool { return k.Message != risen[0].Message })
		if n < 0 {
			n = len(risen)
		}
		s.logMessage(now, s.due(now, risen[:n], all), explain)
		risen = risen[n:]
	}
}

// due returns the counters of one message to be logged now. At the end of the minute these are all. Before that,
// they are the counters that may be logged at once, as long as the minute has lines left.
func (s *Sums) due(now int64, risen []*sum, all bool) []*sum {
	m := s.minute[risen[0].Message]
	if m == nil {
		m = new(minute)
		s.minute[risen[0].Message] = m
	} else if now-m.began < int64(sumFor) && !all {
		risen = slices.DeleteFunc(slices.Clone(risen), func(k *sum) bool { return now < k.quiet })
		risen = risen[:min(len(risen), max(mostLines-m.lines, 0))]
		m.lines += len(risen)
		return risen
	}
	m.began, m.lines = now, len(risen)
	return risen
}

func (s *Sums) logMessage(now int64, risen []*sum, explain Explanation) {
	var rests []*rest
	for i, k := range risen {
		by, within, logged := k.Total-k.logged, time.Duration(now-k.since), k.logged
		increase := k.settle(now, explain.Reasons(&k.Counter))
		level, more := explain.Level(&k.Counter, increase), explain.Attrs(&k.Counter, increase)
		if sum := total(increase); more == nil && sum > by { // the counter has risen since Look was called
			by, k.logged = sum, logged+sum
		}
		if i >= mostLines {
			rests = addRest(rests, k.Kind, by, level)
			continue
		}
		attrs := []any{k.Kind, k.Name}
		if k.Filter != "" {
			attrs = append(attrs, "filter", k.Filter)
		}
		when := "within"
		if by == 1 {
			when = "age"
		}
		attrs = append(attrs, "times", by, when, within.Round(time.Second).String())
		if more != nil {
			attrs = append(attrs, more...)
		} else if len(increase) > 0 {
			attrs = append(attrs, "reasons", list(increase))
		}
		s.log.Log(context.Background(), level, k.Message, attrs...)
	}
	for _, r := range rests {
		s.log.Log(context.Background(), r.level, risen[0].Message, "others", r.others, "of", r.kind, "times", r.times)
	}
}

// A rest sums up the counters of one kind that have no line of their own. An event that a listener and its
// upstream both count is counted once for each kind.
type rest struct {
	kind          string
	others, times int64
	level         slog.Level
}

func addRest(rests []*rest, kind string, n int64, level slog.Level) []*rest {
	i := slices.IndexFunc(rests, func(r *rest) bool { return r.kind == kind })
	if i < 0 {
		i = len(rests)
		rests = append(rests, &rest{kind: kind, level: level})
	}
	r := rests[i]
	r.others, r.times, r.level = r.others+1, r.times+n, max(r.level, level)
	return rests
}

// settle notes that everything was logged, and returns the new events by reason.
func (k *sum) settle(now int64, reasons map[string]int64) (increase map[string]int64) {
	increase = maps.Clone(reasons)
	for reason, n := range k.reasons {
		if increase[reason] -= n; increase[reason] == 0 {
			delete(increase, reason)
		}
	}
	k.logged, k.reasons, k.since, k.quiet = k.Total, reasons, now, now+int64(sumFor)
	return increase
}

func total(counts map[string]int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

func list(counts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}
