package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

var sessionColumns = []column{
	{name: "client", limit: 28},
	{name: "endpoint", limit: 24},
	{name: "limited by"},
	{name: "age", right: true, drop: 1},
	{name: "in/s", right: true, drop: 2},
	{name: "out/s", right: true},
	{name: "why"},
}

// sessionTable is the sessions that were the least idle, and what limits them.
func sessionTable(y *admin.Why) table {
	t := table{columns: sessionColumns}
	window := time.Duration(y.WindowUs) * time.Microsecond
	for i := range y.Sessions {
		s := &y.Sessions[i]
		f := flow{unknown, unknown}
		if s.ClientLeg != nil && window > 0 {
			f = flow{between(0, s.ClientLeg.Received, window), between(0, s.ClientLeg.Sent, window)}
		}
		old := time.Duration(s.AgeUs) * time.Microsecond
		tone := calm
		switch s.Verdict {
		case "idle", "unknown":
			tone = faint
		case "proxy":
			tone = warn
		}
		t.rows = append(t.rows, row{tone: tone, detail: s.Why, cells: []cell{
			name(s.Client), name(cmp.Or(s.Name, s.Endpoint)), name(s.Verdict), figure(short(old).String(), old),
			figure(f.in.bytes(), f.in), figure(f.out.bytes(), f.out), name(oneLine(s.Why)),
		}})
	}
	return t
}

// verdictLines are the verdict on all sessions, and its advice.
func verdictLines(y *admin.Why) []string {
	if y == nil {
		return []string{"sessions are looked at ..."}
	}
	if y.Count == 0 {
		return []string{"no session is joined"}
	}
	kinds := slices.Collect(maps.Keys(y.Shares))
	slices.SortFunc(kinds, func(a, b string) int { return cmp.Or(cmp.Compare(y.Shares[b], y.Shares[a]), strings.Compare(a, b)) })
	var parts []string
	for _, kind := range kinds {
		parts = append(parts, fmt.Sprintf("%s %.0f %%", display.Text(kind), 100*y.Shares[kind]))
	}
	more := ""
	if y.More {
		more = " and more"
	}
	return []string{fmt.Sprintf("the time of %d sessions%s: %s", y.Count, more, strings.Join(parts, ", ")), oneLine(y.Advice)}
}
