// Package shares divides the CPU time of the trials of a run among the parts of the work, by samples of perf.
package shares

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/report"
)

// Comm is the name of the proxy's processes in samples.
const Comm = "penstock"

// A window is the time of a trial that counts.
type window struct {
	from, to int64 // nanoseconds since 1970
	of       *report.Breakdown
}

// Of returns where the time of a run went: a share for each contestant of each scenario that has trials of messages or
// streams, without those that count system calls. samples is the output of
//
//	perf script -F comm,pid,time,ip,sym
//
// of `perf record -g -F hertz -e cpu-clock -k CLOCK_REALTIME`, which has followed the run. Samples outside of trials do not
// count. An error names the line that is none of such a file.
func Of(doc *report.Document, samples io.Reader, hertz float64) ([]report.Breakdown, error) {
	var list []*report.Breakdown
	var windows []window
	for _, s := range doc.Scenarios {
		for _, t := range s.Trials {
			if t.Role == report.Counting || s.Workload != "echo" && s.Workload != "bulk" {
				continue
			}
			of := find(&list, s, t.Contestant)
			of.Units += units(s, t)
			begin := doc.Began.Add(seconds(t.StartSeconds) + seconds(t.WarmupSeconds))
			windows = append(windows, window{begin.UnixNano(), begin.Add(seconds(t.ElapsedSeconds)).UnixNano(), of})
		}
	}
	slices.SortFunc(windows, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	if err := count(windows, samples, 1/hertz); err != nil {
		return nil, err
	}
	all := make([]report.Breakdown, len(list))
	for i, s := range list {
		all[i] = *s
	}
	return all, nil
}

func seconds(n report.Number) time.Duration { return time.Duration(float64(n) * float64(time.Second)) }

// find returns the share of a contestant in a scenario, a new one if there is none.
func find(list *[]*report.Breakdown, s *report.Scenario, contestant string) *report.Breakdown {
	for _, of := range *list {
		if of.Scenario == s.Name && of.Contestant == contestant {
			return of
		}
	}
	of := &report.Breakdown{Scenario: s.Name, Title: s.Title, Contestant: contestant, Unit: "request"}
	if s.Workload == "bulk" {
		of.Unit = "GB"
	}
	*list = append(*list, of)
	return of
}

// units is how many requests, or GB, a trial has carried in the time that counts.
func units(s *report.Scenario, t *report.Trial) float64 {
	if s.Workload == "bulk" {
		return float64(t.ReceivedBytes-t.WarmupBytes) / 1e9
	}
	return float64(t.Requests)
}

// A sample is where a process was when the clock rang.
type sample struct {
	comm  string
	at    int64 // nanoseconds since 1970
	stack []frame
}

// A frame is a place in the code, the innermost first.
type frame struct {
	kernel bool
	symbol string
}

// count adds the samples within windows to these.
func count(windows []window, samples io.Reader, each float64) error {
	return read(samples, func(s *sample) {
		at, found := slices.BinarySearchFunc(windows, s.at, func(w window, at int64) int { return cmp.Compare(w.from, at) })
		if !found {
			at--
		}
		if at >= 0 && s.at < windows[at].to {
			windows[at].of.Seconds[partOf(s)] += each
		}
	})
}

// read calls see for each sample of a file of perf script: a line with name, process and time, a line for each frame, and
// an empty line.
func read(r io.Reader, see func(*sample)) error {
	lines := bufio.NewScanner(r)
	var s sample
	begun := false
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.TrimSpace(line) == "":
			if begun {
				see(&s)
			}
			begun = false
		case strings.HasPrefix(line, "\t") && begun:
			address, symbol, _ := strings.Cut(strings.TrimSpace(line), " ")
			s.stack = append(s.stack, frame{len(address) == 16 && strings.HasPrefix(address, "ffff"), symbol})
		default:
			var err error
			if s.comm, s.at, err = head(line); err != nil {
				return fmt.Errorf("line %d: %q is no sample of perf script -F comm,pid,time,ip,sym: %w", n, line, err)
			}
			s.stack, begun = s.stack[:0], true
		}
	}
	if begun {
		see(&s)
	}
	return lines.Err()
}

// head parses the first line of a sample: "penstock  1234 1795751123.123456: ".
func head(line string) (comm string, at int64, err error) {
	f := strings.Fields(line)
	if len(f) < 3 {
		return "", 0, fmt.Errorf("%d words", len(f))
	}
	whole, part, _ := strings.Cut(strings.TrimSuffix(f[len(f)-1], ":"), ".")
	sec, err := strconv.ParseInt(whole, 10, 32)
	if err != nil {
		return "", 0, err
	}
	nsec, err := strconv.ParseUint((part + "000000000")[:9], 10, 32)
	if err != nil {
		return "", 0, err
	}
	return strings.Join(f[:len(f)-2], " "), sec*1e9 + int64(nsec), nil
}
