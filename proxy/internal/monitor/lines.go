package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// The limits for the lines of one upstream: linesAtOnce at once, and then one more for each linePause. Further
// lines are summed up, at most once in each sumPause.
const (
	linesAtOnce = 20
	linePause   = time.Second
	sumPause    = 10 * time.Second
	mostNames   = 5 // names in a sum; the others are only counted
)

// A Line is a log line about something that may happen many times at once.
type Line struct {
	Upstream string // lines of the same upstream have a common limit
	Listener string // instead of Upstream, for a line of a listener
	Level    slog.Level
	Message  string
	Kind     any    // comparable; lines with the same Message and Kind are summed up together, and the sum shows Kind
	Name     string // subject of the line
	Count    int64  // number of events, 1 for a single one
	Attrs    []any  // attributes of the line; a sum has none
}

// Lines logs lines at once while they are few. If there are more, it logs sums: the number of events and lines
// that were left out, and the subjects of the first few. It counts all that it leaves out. It is safe for
// concurrent use.
type Lines struct {
	log *slog.Logger

	mu     sync.Mutex
	groups map[groupKey]*lineGroup
}

type groupKey struct{ upstream, listener string }

type lineGroup struct {
	full int64      // when linesAtOnce lines may be logged at once again
	sum  int64      // when the next sum may be logged
	left []*lineSum // sums of the lines that were left out, the oldest first
}

type lineKey struct {
	message string
	kind    any
}

type lineSum struct {
	lineKey
	level       slog.Level
	count, more int64 // events, and lines about subjects that are not in names
	since       int64
	names       []string
}

// NewLines returns a Lines that has logged nothing.
func NewLines(log *slog.Logger) *Lines {
	return &Lines{log: log, groups: make(map[groupKey]*lineGroup)}
}

// Note logs a line, or counts it for a sum. now is the time of the clock.
func (l *Lines) Note(now int64, line *Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := groupKey{line.Upstream, line.Listener}
	g := l.groups[key]
	if g == nil {
		g = new(lineGroup)
		l.groups[key] = g
	}
	// No line overtakes a waiting sum, so the last line shows the present state.
	if len(g.left) == 0 && now >= g.full-(linesAtOnce-1)*int64(linePause) {
		g.full = max(g.full, now) + int64(linePause)
		l.log.Log(context.Background(), line.Level, line.Message, line.Attrs...)
		return
	}
	g.add(now, line)
}

func (g *lineGroup) add(now int64, line *Line) {
	key := lineKey{line.Message, line.Kind}
	i := slices.IndexFunc(g.left, func(s *lineSum) bool { return s.lineKey == key })
	if i < 0 {
		i = len(g.left)
		g.left = append(g.left, &lineSum{lineKey: key, level: line.Level, since: now})
	}
	s := g.left[i]
	s.count += line.Count
	s.level = max(s.level, line.Level)
	switch {
	case slices.Contains(s.names, line.Name):
	case len(s.names) < mostNames:
		s.names = append(s.names, line.Name)
	default:
		s.more++
	}
}

// Look logs the sums that are due, and forgets the groups that have nothing to log.
func (l *Lines) Look(now int64) {
	l.each(now, func(g *lineGroup) bool { return now >= g.sum })
}

// Flush logs all sums. It is called at the end.
func (l *Lines) Flush(now int64) {
	l.each(now, func(*lineGroup) bool { return true })
}

func (l *Lines) each(now int64, due func(g *lineGroup) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, g := range l.groups {
		switch {
		case len(g.left) > 0 && due(g):
			for _, s := range g.left {
				s.log(l.log, key, now)
			}
			g.left, g.sum = nil, now+int64(sumPause)
		case len(g.left) == 0 && now >= g.full && now >= g.sum:
			delete(l.groups, key)
		}
	}
}

func (s *lineSum) log(logger *slog.Logger, group groupKey, now int64) {
	kind, name := "upstream", group.upstream
	if group.listener != "" {
		kind, name = "listener", group.listener
	}
	first := strings.Join(s.names, ", ")
	if s.more > 0 {
		first += fmt.Sprintf(" and %d more", s.more)
	}
	logger.Log(context.Background(), s.level, s.message+", further ones", kind, name, "kind", fmt.Sprint(s.kind),
		"times", s.count, "within", time.Duration(now-s.since).Round(time.Second).String(), "of", first)
}
