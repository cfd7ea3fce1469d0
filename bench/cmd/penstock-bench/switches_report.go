package main

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/switches"
	"github.com/penstock/penstock/proxy/cli"
)

// switchesFormat is the number of the document's form.
const switchesFormat = 1

// switchesDocument is the document of --json.
type switchesDocument struct {
	benchHead
	hostInfo
	*switches.Report
}

// measured reports whether there is a trial.
func (d *switchesDocument) measured() bool {
	return d.Report != nil && slices.ContainsFunc(d.Groups, func(g switches.Group) bool {
		return slices.ContainsFunc(g.Rows, func(r switches.Row) bool { return r.Median != nil })
	})
}

// switchesReport writes the document for people.
type switchesReport struct {
	*page
	*switchesDocument
}

func (d *switchesDocument) print(e *cli.Env) {
	r := &switchesReport{newDocumentPage(e), d}
	r.heading("Many active connections: a thread each, a goroutine each, loops")
	r.header(&d.benchHead, r.facts())
	for i := range r.Groups {
		r.group(&r.Groups[i])
	}
	r.legend()
}

// facts returns the circumstances and the method of the measurement.
func (d *switchesDocument) facts() *facts {
	f := d.benchHead.facts(d.network())
	f.add("method", `%s; the servers take turns in alternating order; windows of %s; medians; a ratio is to the threads of
		the same round`, roundsText(d.Rounds), report.Seconds(float64(d.WindowSeconds)))
	f.add("system calls", "%s", d.counted(d.SystemCallCounter))
	for _, s := range d.Groups[0].Rows {
		f.add(s.Server, "%s", s.About)
	}
	return f
}

// roundsText counts them.
func roundsText(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// group writes the table of one number of connections, and the gaps in it.
func (r *switchesReport) group(g *switches.Group) {
	r.heading(report.Exact(int64(g.Connections)) + " connections")
	var t report.Table
	if slices.ContainsFunc(g.Rows, func(row switches.Row) bool { return row.Median != nil }) {
		t.Row("", "req/s", "calls/s", "sw/s", "sw/req", "CPU/req", "mean", "p50", "p99", "RssAnon", "threads")
	}
	for i := range g.Rows {
		row := &g.Rows[i]
		if row.Median != nil {
			t.Row(switchesRow(row)...)
		}
		if row.Ratio != nil {
			t.Row(ratioRow(row, &g.Rows[0])...)
		}
	}
	r.table(&t)
	for i := range g.Rows {
		row := &g.Rows[i]
		if row.Missing != "" {
			r.prose("%s: %s", row.Server, row.Missing)
		}
		if row.CallsFailed != "" {
			r.prose("%s: system calls not counted: %s", row.Server, row.CallsFailed)
		}
	}
}

// switchesRow is the medians of a server.
func switchesRow(row *switches.Row) []string {
	m := row.Median
	count := func(n report.Number) string { return report.Count(float64(n)) }
	seconds := func(n report.Number) string { return report.Seconds(float64(n)) }
	return []string{
		row.Server, count(m.RequestsPerSecond), count(row.CallsPerSecond),
		count(m.SwitchesPerSecond), report.Ratio(float64(m.SwitchesPerRequest)), seconds(m.CPUPerRequest),
		seconds(m.Mean), seconds(m.P50), seconds(m.P99),
		report.Bytes(float64(m.MemoryPerConnection)), report.Ratio(float64(m.ThreadsPerConnection)),
	}
}

// ratioRow is a server's ratios to the threads.
func ratioRow(row, threads *switches.Row) []string {
	ratio := func(n report.Number) string { return report.Ratio(float64(n)) }
	q := row.Ratio
	return []string{
		"  ratio", ratio(q.RequestsPerSecond), ratio(row.CallsPerSecond / threads.CallsPerSecond),
		ratio(q.SwitchesPerSecond), ratio(q.SwitchesPerRequest), ratio(q.CPUPerRequest),
		ratio(q.Mean), ratio(q.P50), ratio(q.P99), ratio(q.MemoryPerConnection), ratio(q.ThreadsPerConnection),
	}
}

// legend explains the columns of the tables.
func (r *switchesReport) legend() {
	r.heading("How to read it")
	r.prose(`Each connection sends %d bytes, waits for their return, and sends again: a closed loop. So the mean
		latency is the connections divided by the requests per second, and says nothing that those do not; p50
		and p99 tell how evenly the connections are served. All figures are of the window, which begins when the
		load has warmed up and all connections are active; latencies are of the messages that came back in it.`, r.MessageBytes)
	r.prose(`calls/s: the server's system calls. They are counted per request in a run of their own, which the
		counting slows down (strace much more than perf), and multiplied by req/s: an estimate. sw: context switches of the server's threads, counted by
		the kernel. CPU: the server's own. RssAnon: per connection, without what the idle server had; a
		thread's kernel stack (16 KiB on amd64) is not in it. threads: all of the server's, per connection.`)
	r.prose(`The threads are Go's, with GOMAXPROCS raised so that the kernel schedules them; what the runtime
		does at each system call is in their CPU, and a server without a runtime would not have it.`)
}
