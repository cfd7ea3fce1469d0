// Command penstock is a TCP load balancer in which the kernel moves large transfers.
package main

import (
	"context"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/completion"
)

func main() {
	e, release := cli.ProcessEnv(programName)
	code := run(e)
	release()
	os.Exit(code)
}

const programName = "penstock"

const description = `A TCP load balancer in which the kernel moves large transfers.

Forward a port to a server:

    penstock proxy --listen :8080 --to 10.0.0.5:80

Balance connections over two servers. If a server refuses, the next one is tried:

    penstock proxy --listen :8080 --to 10.0.0.5:80 --to 10.0.0.6:80

Run the load balancer, and change its configuration without dropping connections:

    penstock run penstock.yaml
    penstock reload --config penstock.yaml

List every flag of a command:

    penstock proxy --help`

type commands struct {
	Proxy    proxyCmd    `cmd:"" help:"Forward connections to endpoints, without a configuration file."`
	Run      runCmd      `cmd:"" help:"Run the load balancer with a configuration file."`
	Reload   reloadCmd   `cmd:"" help:"Make the process read its file again, optionally with automatic rollback."`
	Confirm  confirmCmd  `cmd:"" help:"Confirm a pending reload."`
	Rollback rollbackCmd `cmd:"" help:"Roll back to the previous configuration."`
	Check    checkCmd    `cmd:"" help:"Validate a configuration, and report every error with a correction."`
	Config   configCmd   `cmd:"" help:"Print the effective configuration: all files in one, with all defaults."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON Schema of a configuration, for editors."`
	Plan     planCmd     `cmd:"" help:"Show what a reload of a configuration would change, and how many connections it would affect."`
	Status   statusCmd   `cmd:"" help:"Show the status of listeners, upstreams, endpoints and connections."`
	Sessions sessionsCmd `cmd:"" help:"List the connected clients, and end their sessions."`
	Sources  sourcesCmd  `cmd:"" help:"List the sources of clients with the most connections, new connections, refusals or bytes."`
	Deny     denyCmd     `cmd:"" help:"Deny sources for a time, and list the denied sources."`
	Page     pageCmd     `cmd:"" help:"Open the web page of the running process in a browser."`
	Why      whyCmd      `cmd:"" help:"Say what slows sessions down: the client, the endpoint, a network, this process, a bandwidth limit, or nothing."`
	Mirror   mirrorCmd   `cmd:"" help:"Compare the answers of mirrors with the answers that clients get. With a flag, exit with an error if they differ."`
	Lane     laneCmd     `cmd:"" help:"List or reset the sessions that only the kernel forwards (the lane), and switch the lane off and on."`
	Listener listenerCmd `cmd:"" help:"List the listeners, and drain a listener."`
	Split    splitCmd    `cmd:"" help:"List the splits, and set the percentages of a split."`
	Process  processCmd  `cmd:"" help:"Show the state of the process, and drain it."`
	Endpoint endpointCmd `cmd:"" help:"List endpoints, and change them without editing the file: add, remove, drain, maint, ready, weight."`
	Trace    traceCmd    `cmd:"" help:"Watch for some seconds what the kernel does to the connections and threads of a process: retransmissions, resets, drops, waits."`
	Profile  profileCmd  `cmd:"" help:"Write a CPU profile of the running process, or of any other process, for go tool pprof."`
	Top      topCmd      `cmd:"" help:"Show throughput, sessions, endpoints, loops and problems on the terminal, as they change."`
	Demo     demoCmd     `cmd:"" help:"Run a demonstration of ten seconds: a load balancer under load, while its endpoints die, drain and come back."`
	Doctor   doctorCmd   `cmd:"" help:"Check this host or the running process for missing kernel features, limits and permissions, and say what each costs and how to fix it."`
	Version  versionCmd  `cmd:"" help:"Print the version of this program."`

	Completion completionCmd `cmd:"" help:"Print a script for bash, zsh or fish that completes these commands and the names of the running process."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:"" help:"Answer such a script."`
	Drain      formerCmd     `cmd:"" hidden:"" passthrough:""`
	Weight     formerCmd     `cmd:"" hidden:"" passthrough:""`
	Fmt        formerCmd     `cmd:"" hidden:"" passthrough:""`
}

func run(e *cli.Env) int { return commandLine().Run(e) }

// commandLine returns the command line before it is parsed.
func commandLine() *cli.Program {
	of := &commands{
		Drain:  formerCmd{instead: "penstock process drain, penstock listener drain NAME, or penstock endpoint drain UPSTREAM ENDPOINT"},
		Weight: formerCmd{instead: "penstock endpoint weight UPSTREAM ENDPOINT N"},
		Fmt:    formerCmd{instead: "any formatter of YAML, and penstock check"},
	}
	return &cli.Program{Name: programName, Description: description, Commands: of, Instead: map[string]string{ // flags of HAProxy
		"-c": "penstock check FILE checks a file",
		"-f": "penstock run FILE runs a file, penstock check FILE checks it",
		"-s": "penstock reload --config FILE reloads a file",
		"-D": "penstock run FILE stays in the foreground: run it by systemd",
	}}
}

// A formerCmd is a removed command. It says what to use instead, and changes nothing.
type formerCmd struct {
	instead string
	Rest    []string `arg:"" optional:""`
}

// Run says what to use instead.
func (c *formerCmd) Run(*cli.Env) error {
	return cli.Usagef("this command is gone, and nothing was changed. Use %s", c.instead)
}

type versionCmd struct{}

// Run prints one line: the module's version, the commit if the build knows it, the compiler, and the platform.
func (*versionCmd) Run(e *cli.Env) error {
	return say(e.Stdout, "penstock %s %s %s/%s\n", cli.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

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
