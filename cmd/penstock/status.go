package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	for _, l := range s.Listeners {
		fmt.Fprintf(t, "listener\t%s\t%s\t%s; %s\n", l.Name, l.State, clients(l.Connections), strings.Join(l.Addresses, ", "))
	}
	for i := range s.Upstreams {
		writeUpstream(t, &s.Upstreams[i])
	}
	return t.Flush()
}

func clients(c admin.Connections) string {
	return fmt.Sprintf("active %d, accepted %d, refused %d", c.Active, c.Accepted, c.Refused)
}

func writeUpstream(w io.Writer, u *admin.Upstream) {
	notes := ""
	if u.Breaker != "" && u.Breaker != "closed" {
		notes += ", breaker " + u.Breaker
	}
	if u.Panic {
		notes += ", too few endpoints are healthy: all are used"
	}
	fmt.Fprintf(w, "upstream\t%s\t%s\tactive %d, waiting %d%s\n", u.Name, u.Balance, u.Active, u.Pending, notes)
	for _, e := range u.Endpoints {
		state := string(e.State)
		if e.Why != "" {
			state += " (" + e.Why + ")"
		}
		fmt.Fprintf(w, "  endpoint\t%s\t%s\tactive %d, ever %d, failures %d, weight %d\n", e.Name, state, e.Active, e.Total, e.Failures, e.Weight)
	}
}
