package evidence

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

// maxRows is the largest number of rows of a table in the text.
const maxRows = 20

// WriteText writes the report as text, with sums by listener, endpoint and thread. Only the JSON form has the
// connections.
func (r *Report) WriteText(w io.Writer) error {
	out := display.NewWriter(w)
	form := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%s, %.1f s\n\n%s\n", display.Text(r.Target), r.Seconds, display.Text(r.Summary))
	if len(r.Lacks) > 0 {
		fmt.Fprintf(out, "\nwithout a trace: BPF programs for tracepoints need %s (%s)\n", strings.Join(r.Lacks, " and "), display.Text(r.Why))
	}
	r.writeEvents(form)
	writeRows(form, "delay\tdevice\tbelongs to\tcount\tin all\tp50\tp99\tlongest", r.Delays, func(d *Delay) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%s", d.Name, cmp.Or(d.Device, "-"), display.Text(d.Owner.String()), d.Count, d.cells())
	})
	writeRows(form, "waits for a CPU\tprocess\tname\tcount\tin all\tp50\tp99\tlongest", r.Threads, func(t *Thread) string {
		return fmt.Sprintf("thread %d\t%d\t%s\t%d\t%s", t.TID, t.PID, display.Text(cmp.Or(t.Name, "-")), t.Count, t.cells())
	})
	if err := form.Flush(); err != nil {
		return err
	}
	if len(r.Unmatched) > 0 {
		var list []string
		for _, kind := range slices.Sorted(maps.Keys(r.Unmatched)) {
			list = append(list, fmt.Sprintf("%d × %v", r.Unmatched[kind], kind))
		}
		fmt.Fprintf(out, "\nunmatched events, of other processes or of unknown connections: %s\n", strings.Join(list, ", "))
	}
	for _, m := range r.Missing {
		fmt.Fprintf(out, "\nnot attached to %s: %s\n", m.Tracepoint, display.Text(m.Why))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "\nnote: %s\n", display.Text(note))
	}
	return nil
}

// An eventRow is the sum of the events of a listener or an endpoint.
type eventRow struct {
	kind   kerneltrace.Kind
	reason string
	owner  Owner
}

func (r *Report) writeEvents(form io.Writer) {
	type sum struct {
		count       uint64
		connections int
		example     *Event
	}
	rows := make(map[eventRow]*sum)
	for i := range r.Events {
		e := &r.Events[i]
		k := eventRow{e.Kind, strings.TrimSpace(e.Reason + " " + e.Direction), e.place()}
		if rows[k] == nil {
			rows[k] = &sum{example: e} // the event with the highest count comes first
		}
		rows[k].count += e.Count
		rows[k].connections++
	}
	keys := slices.SortedFunc(maps.Keys(rows), func(a, b eventRow) int {
		return cmp.Or(cmp.Compare(rows[b].count, rows[a].count), cmp.Compare(a.kind, b.kind), cmp.Compare(a.reason, b.reason), cmp.Compare(a.owner.String(), b.owner.String()))
	})
	writeRows(form, "event\treason\tbelongs to\tcount\tconnections\tmost on one connection", keys, func(k *eventRow) string {
		s := rows[*k]
		most := "-"
		if s.example.Local != "" {
			most = fmt.Sprintf("%d: %s - %s", s.example.Count, s.example.Local, s.example.Remote)
		}
		owner := k.owner.String()
		if k.kind == kerneltrace.DeviceStall {
			owner = "a network device"
		}
		return fmt.Sprintf("%v\t%s\t%s\t%d\t%d\t%s", k.kind, cmp.Or(k.reason, "-"), display.Text(owner), s.count, s.connections, most)
	})
}

// writeRows writes a table, unless it has no row.
func writeRows[T any](form io.Writer, head string, list []T, row func(*T) string) {
	if len(list) > 0 {
		fmt.Fprintln(form, "\n"+head)
	}
	for i := range list {
		if i == maxRows {
			fmt.Fprintf(form, "... and %d more rows\n", len(list)-i)
			break
		}
		fmt.Fprintln(form, row(&list[i]))
	}
}

// cells returns the columns of times. If only the sum is known, there are no quantiles.
func (t *Times) cells() string {
	if t.MaxUs == 0 {
		return duration(t.TotalUs) + "\tunknown\tunknown\tunknown"
	}
	return strings.Join([]string{duration(t.TotalUs), duration(t.P50Us), duration(t.P99Us), duration(t.MaxUs)}, "\t")
}
