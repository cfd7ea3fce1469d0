package monitor_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/proxy/internal/monitor"
)

func health(upstream string, i int, state string) *monitor.Line {
	level := slog.LevelWarn
	if state == "healthy" {
		level = slog.LevelInfo
	}
	name := fmt.Sprintf("e%d", i)
	return &monitor.Line{
		Upstream: upstream, Level: level, Message: "health", Kind: state, Name: name, Count: 1,
		Attrs: []any{"upstream", upstream, "endpoint", name, "state", state},
	}
}

// lines returns the logged lines of the first n endpoints of an upstream.
func lines(upstream string, n int, state string) (list []string) {
	level := "WARN"
	if state == "healthy" {
		level = "INFO"
	}
	for i := range n {
		list = append(list, fmt.Sprintf("level=%s msg=health upstream=%s endpoint=e%d state=%s", level, upstream, i, state))
	}
	return list
}

// TestManyLinesAreSummedUp: of 10,000 changes at once twenty are lines, and the others a sum
// that counts every one.
func TestManyLinesAreSummedUp(t *testing.T) {
	b := new(book)
	l := monitor.NewLines(b.log())
	for i := range 10_000 {
		l.Note(at(1)+int64(i), health("u", i, "unhealthy"))
	}
	l.Note(at(1.5), health("v", 0, "unhealthy"))
	b.says(t, "at once", append(lines("u", 20, "unhealthy"), lines("v", 1, "unhealthy")...)...)
	l.Look(at(2))
	b.says(t, "a second later", `level=WARN msg="health, further ones" upstream=u kind=unhealthy times=9980 within=1s of="e20, e21, e22, e23, e24 and 9975 more"`)
	l.Look(at(3))
	b.says(t, "and nothing twice")
	for i := range 10_000 {
		l.Note(at(4), health("u", i, "healthy"))
	}
	for i := range 30 {
		l.Note(at(5), health("u", i, "unhealthy"))
	}
	b.says(t, "the lines for which there was room meanwhile", lines("u", 3, "healthy")...)
	l.Look(at(11.9))
	b.says(t, "too early for a sum")
	l.Look(at(12))
	b.says(t, "ten seconds later, in the order in which it began",
		`level=INFO msg="health, further ones" upstream=u kind=healthy times=9997 within=8s of="e3, e4, e5, e6, e7 and 9992 more"`,
		`level=WARN msg="health, further ones" upstream=u kind=unhealthy times=30 within=7s of="e0, e1, e2, e3, e4 and 25 more"`)
}

// TestNothingOvertakesASum: the last event is logged last.
func TestNothingOvertakesASum(t *testing.T) {
	b := new(book)
	l := monitor.NewLines(b.log())
	for i := range 21 {
		l.Note(at(1), health("u", i, "unhealthy"))
	}
	l.Note(at(30), health("u", 20, "healthy")) // without a look before
	b.says(t, "before", lines("u", 20, "unhealthy")...)
	l.Flush(at(30))
	b.says(t, "at the end",
		`level=WARN msg="health, further ones" upstream=u kind=unhealthy times=1 within=29s of=e20`,
		`level=INFO msg="health, further ones" upstream=u kind=healthy times=1 within=0s of=e20`)
}

// TestSumsCountWhatLinesCount: transitions that a line was to count, sessions.
func TestSumsCountWhatLinesCount(t *testing.T) {
	b := new(book)
	l := monitor.NewLines(b.log())
	for i := range 25 {
		line := health("u", i, "unhealthy")
		line.Count = 100
		l.Note(at(1), line)
	}
	b.says(t, "lines", lines("u", 20, "unhealthy")...)
	l.Flush(at(1))
	b.says(t, "a sum", `level=WARN msg="health, further ones" upstream=u kind=unhealthy times=500 within=0s of="e20, e21, e22, e23, e24"`)
}

// TestLinesAreBounded: endpoints that change all the time, for an hour, are 400 sums and a line
// a second at most, which count all that they did.
func TestLinesAreBounded(t *testing.T) {
	b := new(book)
	l := monitor.NewLines(b.log())
	told := 0
	for s := range 3600 {
		for i := range 100 {
			l.Note(at(float64(s)), health("u", i, "unhealthy"))
			told++
		}
		l.Look(at(float64(s)))
	}
	l.Flush(at(3600))
	single, sums, times := 0, 0, 0
	for line := range strings.Lines(b.text.String()) {
		var n int
		if _, after, ok := strings.Cut(line, "times="); ok {
			fmt.Sscan(after, &n)
			sums++
		} else {
			n = 1
			single++
		}
		times += n
	}
	if times != told || sums > 400 || single > 3620 {
		t.Errorf("%d lines and %d sums report %d of %d", single, sums, times, told)
	}
}

// TestLinesFromAnywhere has the race detector look.
func TestLinesFromAnywhere(t *testing.T) {
	l := monitor.NewLines(slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 500 {
				l.Note(int64(i), health(name(g%2), i, "healthy"))
				l.Look(int64(i))
			}
		})
	}
	all.Wait()
}
