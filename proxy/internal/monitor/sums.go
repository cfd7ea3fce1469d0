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

// A Counter is a count that never falls, at the moment of a look.
type Counter struct {
	Key     any    // comparable; with Message the same at each look
	Message string // of the line that is logged when it rises
	Kind    string // kind of its owner: listener, upstream
	Name    string // of its owner
	Filter  string // the filter of a listener that has the counter; "": its owner has it
	Total   int64
	// Unlogged says that it has no line, only [Sums.Recent].
	Unlogged bool
}

// An Explanation explains a [Counter] that has risen.
type Explanation interface {
	// Reasons returns the parts of a counter by reason, nil for a counter without reasons. The map
	// is not changed afterwards.
	Reasons(c *Counter) map[string]int64
	// Attrs returns further attributes of a counter's line, beside its increase; nil for its
	// reasons.
	Attrs(c *Counter, increase map[string]int64) []any
	// Level returns the level for an increase by reason.
	Level(c *Counter, increase map[string]int64) slog.Level
}

// sumFor is how often increases are logged.
const sumFor = time.Minute

// Sums logs the increases of counters: each of them at once if it was not logged within the
// last minute, and then once a minute, together with all others of its message. A counter that
// has not risen is not mentioned.
type Sums struct {
	log    *slog.Logger
	known  map[sumKey]*sum
	look   uint64
	minute map[string]*minute // by message
}

// A minute is the time from one sum of the counters of a message to the next.
type minute struct {
	began int64
	lines int // that were logged in it
}

type sumKey struct {
	key     any
	message string
}

// A sum is the state of a counter.
type sum struct {
	Counter                  // at the last look
	seen    uint64           // the look
	logged  int64            // of Total
	reasons map[string]int64 // that were logged
	since   int64            // from when on it may have risen beyond that
	quiet   int64            // until when it is not logged at once
	recent  recent
}

// NewSums returns a Sums that knows no counter.
func NewSums(log *slog.Logger) *Sums {
	return &Sums{log: log, known: make(map[sumKey]*sum), minute: make(map[string]*minute)}
}

// Look takes the present counters, at a time of the clock. A counter that was not there at
// the last look has risen from 0. A counter that has gone is logged as if it were there, as far
// as it had risen at the last look that had it.
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

// Flush logs all increases since the last lines, whenever these were: it is for the end.
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

// due returns the counters of one message that are to be logged: at the end of the
// minute all; before it only counters that are new, as long as lines are left.
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

// logMessage logs the increases of one message, the largest first.
func (s *Sums) logMessage(now int64, risen []*sum, explain Explanation) {
	var rests []*rest
	for i, k := range risen {
		by, within, logged := k.Total-k.logged, time.Duration(now-k.since), k.logged
		increase := k.settle(now, explain.Reasons(&k.Counter))
		level, more := explain.Level(&k.Counter, increase), explain.Attrs(&k.Counter, increase)
		if sum := total(increase); more == nil && sum > by { // it has risen since the look
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
		attrs = append(attrs, "times", by, "within", within.Round(time.Second).String())
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

// A rest is the counters of a kind that had no line of their own. An event that is counted by
// a listener and by its upstream is counted once in the rest of each.
type rest struct {
	kind          string
	others, times int64
	level         slog.Level
}

// addRest adds an increase to the rest of its kind.
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

// list lists counts by reason, the largest first.
func list(counts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}
