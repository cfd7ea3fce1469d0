package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/sys"
)

const (
	defaultWidth = 80
	barWidth     = 20
	// eraseLine goes back to the first column and blanks the line (ECMA-48,
	// EL), which every terminal but a dumb one knows.
	eraseLine = "\r\x1b[K"
)

// terminalWidth returns the columns of the terminal that w is, and false if it
// is none or cannot move its cursor.
func terminalWidth(w io.Writer, getenv func(string) string) (int, bool) {
	f, ok := w.(*os.File)
	if !ok || getenv("TERM") == "dumb" {
		return 0, false
	}
	width, err := sys.TerminalWidth(int(f.Fd()))
	if err != nil {
		return 0, false
	}
	if width == 0 {
		width = defaultWidth
	}
	return width, true
}

// progress shows on standard error how far the demo is: one line that changes
// on a terminal, a line for each trial elsewhere.
type progress struct {
	w io.Writer
	// width is asked for each time: a terminal may change its own.
	width func() (columns int, terminal bool)
}

func newProgress(e *env) *progress {
	fmt.Fprintln(e.stderr, "An origin, a load and two proxies, each a process of its own. Ctrl-C ends it.")
	return &progress{w: e.stderr, width: func() (int, bool) { return terminalWidth(e.stderr, e.getenv) }}
}

// show is called as the trials go on.
func (p *progress) show(now bench.Progress) {
	text := fmt.Sprintf("round %d of %d  %-5s %-9s %s",
		now.Round+1, now.Rounds, now.Plan.Workload, now.Contestant, rate(&now))
	width, live := p.width()
	switch {
	case live:
		runes := []rune(bar(&now) + " " + text)
		fmt.Fprint(p.w, eraseLine+string(runes[:min(len(runes), max(width-1, 0))]))
	case now.Result != nil:
		fmt.Fprintln(p.w, text)
	}
}

// end leaves a clean line for what follows.
func (p *progress) end() {
	if _, live := p.width(); live {
		fmt.Fprint(p.w, eraseLine)
	}
}

// bar draws how many of the trials are done.
func bar(now *bench.Progress) string {
	done := float64(now.Trial)
	if now.Result != nil {
		done++
	} else {
		done += min(1, now.Elapsed.Seconds()/now.Plan.Duration.Seconds())
	}
	return fraction(done / float64(now.Trials))
}

// fraction draws a part of 1, in ASCII.
func fraction(done float64) string {
	n := int(min(max(done, 0), 1) * barWidth)
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", barWidth-n) + "]"
}

// rate is what the trial under way does per second.
func rate(now *bench.Progress) string {
	received, elapsed := now.Received, now.Elapsed
	if now.Result != nil {
		received, elapsed = now.Result.Received, now.Result.Elapsed
	}
	if now.Plan.Workload == load.Echo {
		return requestRate(report.PerSecond(received/int64(now.Plan.Size), elapsed))
	}
	return byteRate(report.PerSecond(received, elapsed))
}

func byteRate(x float64) string    { return report.Bytes(x) + "/s" }
func requestRate(x float64) string { return report.Count(x) + "/s" }
