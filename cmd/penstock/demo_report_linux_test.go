package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy"
)

// trials are two rounds in which penstock is twice as fast as the other, and
// the machine half as fast in the second.
func trials() []bench.Trial {
	var list []bench.Trial
	for round := range 2 {
		for speed, name := range []string{rivalName, penstockName} {
			mood := int64(2-round) * int64(speed+1)
			bulk := bench.Trial{
				Round: round, Contestant: name, Pipes: 8 >> speed,
				Plan:   load.Plan{Workload: load.Bulk, Connections: 4},
				Result: load.Result{Sent: 40, Received: mood * 1e9, Elapsed: time.Second},
				Usage:  process.Usage{CPU: 300 * time.Millisecond, Switches: 5000},
			}
			echo := bench.Trial{
				Round: round, Contestant: name, Pipes: -1,
				Plan: load.Plan{Workload: load.Echo, Connections: 16, Size: 64},
				Result: load.Result{
					Sent: mood * 64000, Received: mood * 64000, Requests: mood * 1000, Elapsed: time.Second,
					P50: 300 * time.Microsecond, P99: time.Millisecond,
				},
				Usage: process.Usage{CPU: 20 * time.Millisecond, Switches: 2000},
			}
			if name == penstockName {
				bulk.Summary, echo.Summary = new(proxy.Summary), new(proxy.Summary)
				bulk.Summary.Bytes.ClientToEndpoint.Copied = bulk.Result.Sent
				bulk.Summary.Bytes.EndpointToClient.Spliced = bulk.Result.Received
				bulk.Summary.Pipes = proxy.Pipes{Made: 4, Reused: 1000}
				echo.Summary.Bytes.ClientToEndpoint.Copied = echo.Result.Sent
				echo.Summary.Bytes.EndpointToClient.Copied = echo.Result.Received
			}
			list = append(list, bulk, echo)
		}
	}
	return list
}

// reported returns the report on trials, made for a page of that width.
func reported(trials []bench.Trial, total *proxy.Summary, width int, strong bool) string {
	var out bytes.Buffer
	r := newReport(&env{stdout: &out, getenv: func(string) string { return "" }}, trials, total)
	r.width, r.strong = width, strong
	r.print()
	return out.String()
}

// has checks that text holds each of the lines.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains("\n"+text, "\n"+l+"\n") {
			t.Errorf("no line %q in\n%s", l, text)
		}
	}
}

func TestReport(t *testing.T) {
	total := &proxy.Summary{Fallbacks: map[string]int64{"urgent": 2, "budget": 1200}}
	total.Bytes.EndpointToClient.Spliced = 6e9
	text := reported(trials(), total, 80, false)
	has(t, text,
		"Bulk: 4 connections that stream",
		"                                  penstock          io.Copy  ratio    min .. max",
		"  throughput               3.00 GB/s +-33%  1.50 GB/s +-33%   2.00  2.00 .. 2.00",
		"  pipes held in mid-round               –               –      –             –",
		"Request and response: 64 bytes, 16 connections",
		"        spliced  copied  pipes made  pipes reused",
		"  bulk  6.00 GB    80 B           8         2,000",
		"  echo      0 B  768 kB           0             0",
		"Fallbacks to copying: budget 1,200, urgent 2. Pipes leased now that all is",
	)
	for _, want := range []string{"6,000,384,000 of them", "9,000,576,000 bytes"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.ContainsRune(text, '\x1b') {
		t.Error("an escape sequence where there is no terminal")
	}
}

func TestReportFitsItsPage(t *testing.T) {
	for _, width := range []int{60, 80} {
		text := reported(trials(), new(proxy.Summary), width, false)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(line) - 1; n > width {
				t.Errorf("%d columns, not %d: %s", n, width, line)
			}
		}
	}
}

func TestReportIsBoldOnlyWhereItMayBe(t *testing.T) {
	text := reported(trials(), new(proxy.Summary), 80, true)
	has(t, text, "\x1b[1mChecked\x1b[m")
}

func TestReportSaysThatNothingWasSpliced(t *testing.T) {
	for spliced, want := range map[int64]bool{0: true, 1: false} {
		total := new(proxy.Summary)
		total.Bytes.EndpointToClient.Spliced = spliced
		text := reported(trials(), total, 80, false)
		if said := strings.Contains(text, "Nothing was spliced"); said != want {
			t.Errorf("%d bytes spliced: said %v", spliced, said)
		}
		if claimed := strings.Contains(text, "Spliced bytes went"); claimed == want {
			t.Errorf("%d bytes spliced: claimed %v", spliced, claimed)
		}
	}
}

func TestFigureNobodyLookedAt(t *testing.T) {
	if n := pipes(&bench.Trial{Pipes: -1}); !math.IsNaN(n) {
		t.Errorf("got %v", n)
	}
	if n := pipes(&bench.Trial{}); n != 0 {
		t.Errorf("got %v", n)
	}
}

func TestReachable(t *testing.T) {
	for listening, want := range map[string][2]string{
		"127.0.0.1:80": {"127.0.0.1", "80"},
		"0.0.0.0:8080": {"127.0.0.1", "8080"},
		"[::]:8080":    {"127.0.0.1", "8080"},
		"[::1]:1":      {"::1", "1"},
	} {
		if host, port := reachable(listening); host != want[0] || port != want[1] {
			t.Errorf("%s: got %s and %s", listening, host, port)
		}
	}
}
