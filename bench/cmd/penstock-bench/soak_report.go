package main

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/soak"
	"github.com/penstock/penstock/proxy/cli"
)

// print writes the report for people.
func (d *soakDocument) print(e *cli.Env) {
	line := func(format string, args ...any) { fmt.Fprintf(e.Stdout, format+"\n", args...) }
	what := "penstock proxy " + strings.Join(d.Flags, " ")
	if d.Lane != nil {
		what = "penstock run with a lane"
	}
	line("penstock-bench soak, seed %d: %d connections at once, %.0f s, %s", d.Seed, d.Connections, d.Seconds, what)
	if d.Interrupted {
		line("Interrupted: what follows is what was done until then.")
	}
	line("")
	tables := []*report.Table{soakActions(d.Report), soakBytes(d.Report), soakHeld(d.Report)}
	if d.Lane != nil {
		tables = append(tables, soakLane(d.Lane))
	}
	for _, t := range tables {
		for _, l := range t.Lines() {
			line("%s", l)
		}
		line("")
	}
	for _, v := range d.Violations {
		line("VIOLATED, seed %d: %s", d.Seed, v)
	}
	if len(d.Violations) == 0 && !d.Interrupted {
		line("Everything is accounted for.")
	}
}

// soakActions has a row for everything that was done.
func soakActions(r *soak.Report) *report.Table {
	t := new(report.Table)
	for _, c := range r.Actions {
		t.Row(c.Name, report.Exact(c.N))
	}
	return t
}

// soakBytes compares the bytes sent, the bytes received and the proxy's counts.
func soakBytes(r *soak.Report) *report.Table {
	t := new(report.Table)
	t.Row("bytes", "sent", "received", "moved, says the proxy")
	for _, d := range []struct {
		name string
		at   int
	}{{"client to endpoint", 0}, {"endpoint to client", 1}} {
		exact, torn := r.Exact[d.at], r.Torn[d.at]
		t.Row(d.name, report.Exact(exact.Sent+torn.Sent), report.Exact(exact.Received+torn.Received), report.Exact(r.Moved[d.at]))
		t.Row("  where all had to arrive", report.Exact(exact.Sent), report.Exact(exact.Received))
		t.Row("  torn down in the middle", report.Exact(torn.Sent), report.Exact(torn.Received))
	}
	missing := r.Torn[0].Sent - r.Torn[0].Received + r.Torn[1].Sent - r.Torn[1].Received
	t.Row("sent and not received", report.Exact(missing))
	t.Row("  lost, says the proxy", "", "", report.Exact(r.Lost))
	t.Row("  thrown away by kernels", report.Exact(missing-r.Lost))
	return t
}

// soakLane is the sessions that have left user space, and the link.
func soakLane(l *soak.Lane) *report.Table {
	t := new(report.Table)
	t.Row("connections that may leave user space", report.Exact(l.Connections), "")
	if l.Returned == 0 {
		t.Row("  that have left", report.Exact(l.Left), percent(l.Left, l.Connections))
	} else {
		t.Row("  times that one has left", report.Exact(l.Left), "")
		t.Row("  times that one has come back", report.Exact(l.Returned), "")
	}
	t.Row("bytes there, of all that were moved", report.Exact(l.Bytes), percent(l.Bytes, l.BytesAll))
	t.Row("packets lost", report.Exact(int64(l.Link.Lost)), "")
	t.Row("packets doubled", report.Exact(int64(l.Link.Doubled)), "")
	t.Row("packets late", report.Exact(int64(l.Link.Delayed)), "")
	return t
}

// percent is a share of all in words; "" of nothing.
func percent(n, all int64) string {
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(all))
}

// soakHeld is the resources that the proxy held before and after.
func soakHeld(r *soak.Report) *report.Table {
	t := new(report.Table)
	t.Row("the proxy", "before", "after", "most")
	t.Row("descriptors", report.Exact(int64(r.DescriptorsFirst)), report.Exact(int64(r.DescriptorsLast)))
	t.Row("  of them of idle pipes", "", report.Exact(2*r.PipesIdle))
	t.Row("RssAnon", report.Bytes(float64(r.RssAnonFirst)), report.Bytes(float64(r.RssAnonLast)), report.Bytes(float64(r.RssAnonMost)))
	return t
}
