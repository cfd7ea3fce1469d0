package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/completion"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Run prints the script that a shell reads.
func (c *completionCmd) Run(e *cli.Env) error {
	script, err := completion.Script(c.Shell)
	if err != nil {
		return err
	}
	_, err = io.WriteString(e.Stdout, script)
	return err
}

// completeCmd answers a script made by completionCmd. It prints no errors: the user is in the middle of a line.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words after the program's name."`
}

// Run prints the possible completions of a command line.
func (c *completeCmd) Run(e *cli.Env) error {
	app, err := commandLine().Model()
	if err != nil {
		return err
	}
	words := c.Words
	if len(words) > 0 && words[0] == "--" { // before words that are not flags of this command
		words = words[1:]
	}
	line := completion.Parse(app, words)
	return line.Complete(e.Stdout, func(l *completion.Line, kind string) []string { return namesOf(e, l, kind) })
}

// liveTime limits how long a process may take to answer with names.
const liveTime = 800 * time.Millisecond

// namesOf returns the names of a kind in the running process, or none if it does not answer.
func namesOf(e *cli.Env, l *completion.Line, kind string) (names []string) {
	var flags struct{ adminFlags }
	if err := readFlags(&flags, l); err != nil {
		return nil
	}
	quiet := *e
	quiet.Stderr = io.Discard
	_ = flags.ask(&quiet, "complete", func(ctx context.Context, client *admin.Client) (err error) { // without an answer there are no names
		ctx, cancel := context.WithTimeout(ctx, liveTime)
		defer cancel()
		if kind == "denial" {
			names, err = deniedSources(ctx, client)
			return err
		}
		s, err := client.Status(ctx)
		switch {
		case err != nil:
		case kind == "split":
			names = splitUpstreams(&s, l)
		default:
			names = namesIn(&s, kind, l.Given("upstream"))
		}
		return err
	})
	return names
}

// deniedSources returns the sources that are denied by hand.
func deniedSources(ctx context.Context, client *admin.Client) (names []string, err error) {
	d, err := client.Denied(ctx)
	for _, one := range d.Denied {
		names = append(names, one.Source)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// splitUpstreams returns the upstreams of the split on the line that have no percentage there yet.
func splitUpstreams(s *admin.Status, l *completion.Line) (names []string) {
	route, _ := strconv.Atoi(l.Given("route")) // 0 without --route
	for i := range s.Listeners {
		at := &s.Listeners[i]
		if at.Name != l.Given("listener") || route < 0 || route >= len(at.Routes) || len(at.Routes[route].To) < 2 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(at.Routes[route].To)) {
			if part := name + ":"; !slices.ContainsFunc(l.Arguments(), func(word string) bool { return strings.HasPrefix(word, part) }) {
				names = append(names, part)
			}
		}
	}
	return names
}

// readFlags sets the flags that are on the line.
func readFlags(flags any, l *completion.Line) error {
	k, err := kong.New(flags, kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard))
	if err != nil {
		return err
	}
	var args []string
	for _, flag := range k.Model.Flags {
		if value := l.Given(flag.Name); value != "" {
			args = append(args, "--"+flag.Name+"="+value)
		}
	}
	_, err = k.Parse(args)
	return err
}

// namesIn returns the names of a kind in a status. If upstream is not empty, only its endpoints are listed.
func namesIn(s *admin.Status, kind, upstream string) (names []string) {
	switch kind {
	case "listener":
		for i := range s.Listeners {
			names = append(names, s.Listeners[i].Name)
		}
	case "upstream":
		for i := range s.Upstreams {
			names = append(names, s.Upstreams[i].Name)
		}
	case "endpoint":
		for i := range s.Upstreams {
			if u := &s.Upstreams[i]; upstream == "" || u.Name == upstream {
				for j := range u.Endpoints {
					names = append(names, u.Endpoints[j].Name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
