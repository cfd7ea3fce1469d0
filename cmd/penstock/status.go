package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

type statusCmd struct {
	adminFlags
	JSON bool `name:"json" help:"In JSON, with everything that is counted."`
}

// Run says what a running process does.
func (c *statusCmd) Run(e *env) error {
	return c.ask(e, "status", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Status(ctx)
		switch {
		case err != nil:
			return err
		case c.JSON:
			form := json.NewEncoder(e.stdout)
			form.SetIndent("", "  ")
			return form.Encode(s)
		}
		return writeStatus(e.stdout, &s)
	})
}

// writeStatus writes a status for people.
func writeStatus(w io.Writer, s *admin.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "process\t%d\t%s\tgeneration %d, for %v\n", s.PID, s.State, s.Generation, time.Since(s.Started).Round(time.Second))
	fmt.Fprintf(t, "connections\t\t\t%s\n", clients(s.Connections))
	if s.TLSSessions.Active > 0 {
		fmt.Fprintf(t, "  of them TLS\t\t\tactive %d, at most %d\n", s.TLSSessions.Active, s.TLSSessions.Most)
	}
	for i := range s.Listeners {
		l := &s.Listeners[i]
		fmt.Fprintf(t, "listener\t%s\t%s\t%s%s; %s\n", l.Name, l.State, clients(l.Connections), refusals(l.Reasons), strings.Join(l.Addresses, ", "))
	}
	for i := range s.Upstreams {
		writeUpstream(t, &s.Upstreams[i])
	}
	return t.Flush()
}

func clients(c admin.Connections) string {
	return fmt.Sprintf("active %d, accepted %d, refused %d", c.Active, c.Accepted, c.Refused)
}

// refusals says why clients were refused.
func refusals(counts map[string]int64) string {
	if len(counts) == 0 {
		return ""
	}
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s %d", reason, counts[reason]))
	}
	return " (" + strings.Join(list, ", ") + ")"
}

func writeUpstream(w io.Writer, u *admin.Upstream) {
	notes := ""
	if u.Breaker != "" && u.Breaker != "closed" {
		notes += ", breaker " + u.Breaker
	}
	if u.Panic {
		notes += ", too few endpoints are healthy: all are used"
	}
	if why := refusals(u.Reasons); why != "" {
		notes += ", refused" + why
	}
	fmt.Fprintf(w, "upstream\t%s\t%s\tactive %d, waiting %d%s\n", u.Name, u.Balance, u.Active, u.Pending, notes)
	for _, e := range u.Endpoints {
		state := string(e.State)
		if e.Why != "" {
			state += " (" + e.Why + ")"
		}
		if e.Breaker != "" {
			state += ", breaker " + e.Breaker
		}
		fmt.Fprintf(w, "  endpoint\t%s\t%s\tactive %d, ever %d, failures %d, weight %d\n", e.Name, state, e.Active, e.Total, e.Failures, e.Weight)
	}
}
