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

// The bounds of the lines of one upstream: linesAtOnce at once, and then one more for each
// linePause. Further lines are summed up, at most once in a sumPause.
const (
	linesAtOnce = 20
	linePause   = time.Second
	sumPause    = 10 * time.Second
	mostNames   = 5 // that a sum has; the others are counted
)

// A Line is logged of something that may happen many times at once.
type Line struct {
	Upstream string // the lines of an upstream are bounded together
	Listener string // likewise, if it is no upstream's line
	Level    slog.Level
	Message  string
	Kind     any    // comparable: which lines of a message have the same sum; its text is in it
	Name     string // subject of the line
	Count    int64  // number of events, 1 for a single one
	Attrs    []any  // of the line; a sum has none
}

// Lines logs lines as they come as long as they are few, and beyond that sums: the number of
// events and lines that were left out, and the subjects of the first few. Nothing is left out
// without being counted. It is safe for concurrent use.
type Lines struct {
	log *slog.Logger

	mu     sync.Mutex
	groups map[groupKey]*lineGroup
}

type groupKey struct{ upstream, listener string }

// A lineGroup is the lines of an upstream, or a listener.
type lineGroup struct {
	full int64      // when linesAtOnce may be logged again
	sum  int64      // when the next sum may be
	left []*lineSum // sums of the lines that were left out, in the order in which they began
}

type lineKey struct {
	message string
	kind    any
}

type lineSum struct {
	lineKey
	level        slog.Level
	lines, count int64
	since        int64
	names        []string
}

// NewLines returns a Lines that has logged nothing.
func NewLines(log *slog.Logger) *Lines {
	return &Lines{log: log, groups: make(map[groupKey]*lineGroup)}
}

// Note logs a line, or counts it for a sum, at a time of the clock.
func (l *Lines) Note(now int64, line *Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := groupKey{line.Upstream, line.Listener}
	g := l.groups[key]
	if g == nil {
		g = new(lineGroup)
		l.groups[key] = g
	}
	// While a sum waits nothing overtakes it, so that the last line has the present state.
	if len(g.left) == 0 && now >= g.full-(linesAtOnce-1)*int64(linePause) {
		g.full = max(g.full, now) + int64(linePause)
		l.log.Log(context.Background(), line.Level, line.Message, line.Attrs...)
		return
	}
	g.add(now, line)
}

// add counts a line.
func (g *lineGroup) add(now int64, line *Line) {
	key := lineKey{line.Message, line.Kind}
	i := slices.IndexFunc(g.left, func(s *lineSum) bool { return s.lineKey == key })
	if i < 0 {
		i = len(g.left)
		g.left = append(g.left, &lineSum{lineKey: key, level: line.Level, since: now})
	}
	s := g.left[i]
	s.lines++
	s.count += line.Count
	s.level = max(s.level, line.Level)
	if len(s.names) < mostNames && !slices.Contains(s.names, line.Name) {
		s.names = append(s.names, line.Name)
	}
}

// Look logs the sums that are due, and forgets sums that have nothing to log.
func (l *Lines) Look(now int64) {
	l.each(now, func(g *lineGroup) bool { return now >= g.sum })
}

// Flush logs all sums: it is for the end.
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
	if more := s.lines - int64(len(s.names)); more > 0 {
		first += fmt.Sprintf(" and %d more", more)
	}
	logger.Log(context.Background(), s.level, s.message+", further ones", kind, name, "kind", fmt.Sprint(s.kind),
		"times", s.count, "within", time.Duration(now-s.since).Round(time.Second).String(), "of", first)
}
