package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type statusCmd struct {
	processFlags
	JSON     bool   `name:"json" help:"In JSON, with everything that is counted."`
	Problems bool   `help:"Show only the problems."`
	All      bool   `help:"Show every endpoint. Without it, more than 40 endpoints are summed up, and those with a problem or a change by hand are listed."`
	Listener string `placeholder:"NAME" help:"Show only this listener, beside the process."`
	Upstream string `placeholder:"NAME" help:"Show only this upstream, beside the process."`
	ExitCode bool   `help:"Exit with 3 if there are warnings, and with 4 if clients are not served. With --listener or --upstream only its own problems and those of the process count."`
}

// Run prints the status of a running process.
func (c *statusCmd) Run(e *cli.Env) error {
	return c.ask(e, "status", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Status(ctx)
		if err == nil {
			err = c.narrow(&s)
		}
		switch {
		case err != nil:
			return err
		case c.Problems && c.JSON:
			err = writeJSON(e.Stdout, s.Problems)
		case c.JSON:
			err = writeJSON(e.Stdout, &s)
		case c.Problems:
			err = writeProblems(e.Stdout, s.Problems)
		default:
			err = writeStatus(e.Stdout, &s, time.Now(), c.All)
		}
		if err == nil && c.ExitCode {
			err = verdict(s.Problems)
		}
		return err
	})
}

// writeProblems writes a line for each problem, or that there is none.
func writeProblems(w io.Writer, problems []admin.Problem) error {
	lines := problemLines(problems, len(problems))
	if len(lines) == 0 {
		lines = []string{"no problems"}
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// writeJSON writes the answer of a command as JSON.
func writeJSON(w io.Writer, v any) error {
	form := json.NewEncoder(display.NewWriter(w))
	form.SetIndent("", "  ")
	return form.Encode(v)
}

// verdict returns the exit code for the worst of problems, nil if there are none.
func verdict(problems []admin.Problem) error {
	switch {
	case len(problems) == 0:
		return nil
	case slices.ContainsFunc(problems, func(p admin.Problem) bool { return p.Severity == admin.Outage }):
		return cli.ExitCode(cli.ExitOutage)
	}
	return cli.ExitCode(cli.ExitWarnings)
}

// narrow reduces a status to the selected listener and upstream. It fails if one does not
// exist.
func (c *statusCmd) narrow(s *admin.Status) (err error) {
	if c.Listener == "" && c.Upstream == "" {
		return nil
	}
	nameOfListener := func(l admin.Listener) string { return l.Name }
	nameOfUpstream := func(u admin.Upstream) string { return u.Name }
	if s.Listeners, err = only(s.Listeners, "listener", c.Listener, nameOfListener); err == nil {
		s.Upstreams, err = only(s.Upstreams, "upstream", c.Upstream, nameOfUpstream)
	}
	s.Problems = slices.DeleteFunc(s.Problems, func(p admin.Problem) bool {
		return p.Listener != "" && p.Listener != c.Listener || p.Upstream != "" && p.Upstream != c.Upstream
	})
	return err
}

// only returns the item of that name, and none for an empty name.
func only[T any](list []T, kind, name string, nameOf func(T) string) ([]T, error) {
	if name == "" {
		return []T{}, nil
	}
	if i := slices.IndexFunc(list, func(of T) bool { return nameOf(of) == name }); i >= 0 {
		return list[i : i+1], nil
	}
	names := make([]string, 0, 10)
	for _, of := range list[:min(len(list), cap(names))] {
		names = append(names, nameOf(of))
	}
	if len(list) > len(names) {
		names = append(names, "...")
	}
	return nil, fmt.Errorf("there is no %s %q: there are %s", kind, name, strings.Join(names, ", "))
}
