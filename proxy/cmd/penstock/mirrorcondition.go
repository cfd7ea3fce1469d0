package main

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// A bound is a condition of --fail-if: a figure, one of > >= < <=, and a number, a percentage or a time.
type bound struct {
	text         string
	figure, sign string
	limit        float64
	unit         boundUnit
}

type boundUnit uint8

const (
	asNumber boundUnit = iota
	asShare            // percent of all
	asTime             // microseconds
)

// A finding is whether a condition holds: of several the largest counts.
type finding uint8

const (
	fine    finding = iota
	unclear         // there is too little to know
	holds           // it does, so the command fails
)

var conditionForm = regexp.MustCompile(`^\s*([a-z0-9_]+)\s*(>=|<=|>|<)\s*(\S+)\s*$`)

// answerFigures are figures of a comparison, and mirrorFigures reasons for which mirrors end.
var (
	answerFigures = []string{"compared", "equal", "different", "unsettled", "masked", "slower", "faster", "p90", "p99", "stopped"}
	mirrorFigures = []string{"complete", "behind", "late", "connect", "reset", "pipe", "cut", "error", "no_endpoint", "full", "descriptors", "off_loop"}
)

// parseCondition reads one condition.
func parseCondition(text string) (bound, error) {
	parts := conditionForm.FindStringSubmatch(text)
	if parts == nil {
		return bound{}, fmt.Errorf("%q: write a figure, one of > >= < <=, and a bound: 'different>0.1%%'", text)
	}
	c := bound{text: strings.TrimSpace(text), figure: parts[1], sign: parts[2]}
	if !slices.Contains(answerFigures, c.figure) && !slices.Contains(mirrorFigures, c.figure) {
		return c, fmt.Errorf("%q: there is no figure %s: write one of %s", text, c.figure, strings.Join(slices.Concat(answerFigures, mirrorFigures), ", "))
	}
	if err := c.parseBound(parts[3]); err != nil {
		return c, fmt.Errorf("%q: %w", text, err)
	}
	timed, only := c.figure == "slower" || c.figure == "faster", c.figure == "p90" || c.figure == "p99"
	switch {
	case c.unit == asTime && !timed && !only:
		return c, fmt.Errorf("%q: %s is no time: write a number or a percentage", text, c.figure)
	case c.unit != asTime && only:
		return c, fmt.Errorf("%q: %s is a time: write one, such as 20ms", text, c.figure)
	case c.unit == asShare && c.figure == "compared":
		return c, fmt.Errorf("%q: compared is a number of answers: write one", text)
	}
	return c, nil
}

func (c *bound) parseBound(text string) (err error) {
	number, percent := strings.CutSuffix(text, "%")
	if percent {
		c.unit = asShare
	}
	if c.limit, err = strconv.ParseFloat(number, 64); err == nil && c.limit >= 0 && !math.IsInf(c.limit, 0) {
		return nil
	}
	if d, notTime := time.ParseDuration(text); notTime == nil {
		c.unit, c.limit = asTime, float64(d)/float64(time.Microsecond)
		return nil
	}
	return fmt.Errorf("%s: write a number, a percentage such as 0.1%% or a time such as 5ms", text)
}

// exceeded reports whether a value is beyond the bound.
func (c *bound) exceeded(value float64) bool {
	switch c.sign {
	case ">":
		return value > c.limit
	case ">=":
		return value >= c.limit
	case "<":
		return value < c.limit
	}
	return value <= c.limit
}

// ofAnswers reports whether the condition is about answers, of which those that were not compared are unknown. The number
// of those that were is no statement on them.
func (c *bound) ofAnswers() bool {
	return c.figure != "compared" && c.figure != "stopped" && slices.Contains(answerFigures, c.figure)
}

// judge reports whether the condition holds for a comparison, and why.
func (c *bound) judge(report *admin.MirrorReport, k *admin.Comparison) (finding, string) {
	timed := k.Lag.Slower + k.Lag.Faster + k.Lag.Alike
	switch {
	case c.unit == asTime:
		return c.judgeLag(&k.Lag, timed)
	case c.figure == "compared":
		return c.judgeCount(k.Compared, k.Compared, "answers compared")
	case slices.Contains(mirrorFigures, c.figure):
		var all int64
		for n := range maps.Values(report.Ended) {
			all += n
		}
		return c.judgeCount(report.Ended[c.figure], all, "mirrors that have ended: "+c.figure)
	}
	var stopped int64
	for n := range maps.Values(k.Stopped) {
		stopped += n
	}
	of := map[string][2]int64{
		"equal": {k.Equal, k.Compared}, "different": {k.Different, k.Compared}, "masked": {k.Masked, k.Compared + k.Masked},
		"unsettled": {k.Unsettled, k.Compared + k.Unsettled}, "slower": {k.Lag.Slower, timed}, "faster": {k.Lag.Faster, timed},
		"stopped": {stopped, k.Sessions + k.Stopped[admin.StoppedBudget]},
	}[c.figure]
	what := "answers: " + c.figure
	if c.figure == "stopped" {
		what = "sessions: stopped"
	}
	return c.judgeCount(of[0], of[1], what)
}

// judgeCount is judge of n of all. A share that is smaller than one of all cannot be known, and nothing can be
// without any.
func (c *bound) judgeCount(n, all int64, what string) (finding, string) {
	value := float64(n)
	if c.unit == asShare && all > 0 {
		value = 100 * float64(n) / float64(all)
	}
	text := fmt.Sprintf("%d of %d %s", n, all, what)
	if c.unit == asShare && all > 0 {
		text += fmt.Sprintf(" (%.3g %%)", value)
	}
	least := int64(1)
	if c.unit == asShare && c.limit > 0 {
		least = int64(math.Min(math.Ceil(100/c.limit), math.MaxInt32))
	}
	switch {
	case c.figure == "compared":
		text = fmt.Sprintf("%d %s", n, what)
		if c.exceeded(value) {
			return holds, text
		}
		return fine, text
	case all > 0 && n > 0 && c.exceeded(value):
		return holds, text
	case all < least:
		return unclear, fmt.Sprintf("too little is known: %d %s, and %d are needed", all, strings.TrimSuffix(what, ": "+c.figure), least)
	case c.exceeded(value):
		return holds, text
	}
	return fine, text
}

// judgeLag is judge of a time. A quantile needs as many answers as have one beyond it.
func (c *bound) judgeLag(l *admin.ShadowLag, timed int64) (finding, string) {
	us, least := l.P50Us, int64(1)
	switch c.figure {
	case "faster":
		us = -us
	case "p90":
		us, least = l.P90Us, 10
	case "p99":
		us, least = l.P99Us, 100
	}
	if timed < least {
		return unclear, fmt.Sprintf("too little is known: the times of %d answers, and %d are needed", timed, least)
	}
	text := fmt.Sprintf("%v, of %d answers", time.Duration(us)*time.Microsecond, timed)
	if c.exceeded(float64(us)) {
		return holds, text
	}
	return fine, display.Text(text)
}
