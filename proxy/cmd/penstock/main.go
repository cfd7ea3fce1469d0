// Command penstock is a layer 4 proxy that moves bytes between sockets by
// splice(2) through pooled kernel pipes.
package main

import (
	"os"
	"runtime"

	"github.com/penstock/penstock/proxy/cli"
)

func main() {
	e, release := cli.ProcessEnv(programName)
	code := run(e)
	release()
	os.Exit(code)
}

const programName = "penstock"

const description = `A layer 4 proxy that moves bytes between sockets by splice(2) through pooled kernel pipes.

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
	Reload   reloadCmd   `cmd:"" help:"Reload the running configuration, optionally with automatic rollback."`
	Confirm  confirmCmd  `cmd:"" help:"Confirm a pending reload."`
	Rollback rollbackCmd `cmd:"" help:"Roll back to the previous configuration."`
	Check    checkCmd    `cmd:"" help:"Validate a configuration, and report every error with a correction."`
	Config   configCmd   `cmd:"" help:"Print the effective configuration: all files in one, with all defaults."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON Schema of a configuration, for editors."`
	Plan     planCmd     `cmd:"" help:"Show the changes of a configuration, and the number of connections they affect."`
	Status   statusCmd   `cmd:"" help:"Show the status of listeners, upstreams, endpoints and connections."`
	Sessions sessionsCmd `cmd:"" help:"List the connected clients, and end their sessions."`
	Sources  sourcesCmd  `cmd:"" help:"List the sources of clients with the most connections, new connections, refusals or bytes."`
	Deny     denyCmd     `cmd:"" help:"Deny sources for a time, and list the denied sources."`
	Page     pageCmd     `cmd:"" help:"Open the web page of the running process in a browser."`
	Why      whyCmd      `cmd:"" help:"Say what slows sessions down: the client, the endpoint, a network, this process, a bandwidth limit, or nothing."`
	Mirror   mirrorCmd   `cmd:"" help:"Compare the answers of mirrors with the answers that clients get. A pipeline can fail if they differ."`
	Lane     laneCmd     `cmd:"" help:"List or reset the sessions whose bytes only the kernel moves (the lane), and switch the lane off and on."`
	Listener listenerCmd `cmd:"" help:"List the listeners, and drain a listener."`
	Split    splitCmd    `cmd:"" help:"List the splits, and set the percentages of a split."`
	Process  processCmd  `cmd:"" help:"Show the state of the process, and drain it."`
	Endpoint endpointCmd `cmd:"" help:"List endpoints, and change them without editing the file: add, remove, drain, maint, ready, weight."`
	Trace    traceCmd    `cmd:"" help:"Watch for some seconds what the kernel does to the connections and threads of a process: retransmissions, resets, drops, waits."`
	Profile  profileCmd  `cmd:"" help:"Write a CPU profile of the running process, or of any other process, for go tool pprof."`
	Top      topCmd      `cmd:"" help:"Show throughput, sessions, endpoints, loops and problems on the terminal, as they change."`
	Demo     demoCmd     `cmd:"" help:"Run a demonstration of ten seconds: a load balancer under load, whose endpoints die, drain and come back."`
	Doctor   doctorCmd   `cmd:"" help:"Check this host or the running process for missing kernel features, limits and permissions, and say what each costs and how to fix it."`
	Version  versionCmd  `cmd:"" help:"Print the version of this program."`

	Completion completionCmd `cmd:"" help:"Print a script for bash, zsh or fish that completes these commands and the names of the running process."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:"" help:"Answer such a script."`
	Drain      formerCmd     `cmd:"" hidden:"" passthrough:""`
	Weight     formerCmd     `cmd:"" hidden:"" passthrough:""`
	Fmt        formerCmd     `cmd:"" hidden:"" passthrough:""`
}

// run runs the program in e and returns its exit code.
func run(e *cli.Env) int { return commandLine().Run(e) }

// commandLine returns the command line before it is parsed.
func commandLine() *cli.Program {
	return &cli.Program{Name: programName, Description: description, Commands: &commands{
		Drain:  formerCmd{instead: "penstock process drain, penstock listener drain NAME, or penstock endpoint drain UPSTREAM ENDPOINT"},
		Weight: formerCmd{instead: "penstock endpoint weight UPSTREAM ENDPOINT N"},
		Fmt:    formerCmd{instead: "any formatter of YAML, and penstock check"},
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
