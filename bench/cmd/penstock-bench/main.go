// Command penstock-bench measures Penstock beside HAProxy, nginx, Envoy and the Go standard
// library, by turns in one run. It runs the program penstock, and carries the loads, the
// endpoints and the rivals itself.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/penstock/penstock/proxy/cli"
)

// programName is the name of this program.
const programName = "penstock-bench"

const description = `Measure Penstock and other proxies side by side.

A subset that takes about a minute:

    penstock-bench --quick

Every flag of a command:

    penstock-bench run --help`

// commands is the command line.
type commands struct {
	Run         benchRunCmd    `cmd:"" default:"withargs" help:"Measure proxies against each other: the default command."`
	Idle        idleCmd        `cmd:"" help:"The cost of thousands of idle sessions, and of messages over a few of them."`
	Switches    switchesCmd    `cmd:"" help:"Threads, goroutines and loops under thousands of connections."`
	EchoServers echoServersCmd `cmd:"" help:"The same echo server on Penstock's loops, coroutines of them, gnet, netpoll and the standard library."`
	Write       writeCmd       `cmd:"" help:"Pieces of data to one connection: net.Conn.Write, bufio, net.Buffers and gathered writes."`
	Balancer    balancerCmd    `cmd:"" help:"The cost of a configuration file: penstock run beside penstock proxy."`
	Incident    incidentCmd    `cmd:"" help:"Endpoints turn silent, slow or refusing under load: the effect on clients, without protection and with."`
	Rolling     rollingCmd     `cmd:"" help:"Endpoints that restart, die and fall silent: clients lost, and how long others wait, beside HAProxy and nginx."`
	Reload      benchReloadCmd `cmd:"" help:"Changing the configuration of thousands of listeners and endpoints while they serve."`
	Lane        laneCmd        `cmd:"" help:"Sessions that have left user space, beside penstock run without, HAProxy, nginx, Envoy, io.Copy and no proxy."`
	TLS         benchTLSCmd    `cmd:"" name:"tls" help:"Handshakes and messages of a listener that terminates TLS, beside HAProxy's."`
	Rewrite     rewriteCmd     `cmd:"" help:"The cost of masks and of a module beside splicing and copying."`
	Mirror      mirrorCmd      `cmd:"" help:"The cost of a mirror to a healthy, a dead, a frozen and a slow shadow."`
	Iperf3      iperf3Cmd      `cmd:"" name:"iperf3" help:"One flow of iperf3 through Penstock, HAProxy with splicing, io.Copy and no proxy."`
	Soak        soakCmd        `cmd:"" help:"Connections that stall, reset, half-close and send urgent bytes at random, and everything accounted for."`
	Verdict     verdictCmd     `cmd:"" help:"Verdicts on slow sessions, whose causes are made: how many are right."`
	Claims      claimsCmd      `cmd:"" help:"The page of claims, with fresh figures."`
	Shares      sharesCmd      `cmd:"" help:"A picture of the parts of the work that the CPU time of a run went to, from samples of perf."`
	Version     versionCmd     `cmd:"" help:"Print the version of this program."`
	Part        partCmd        `cmd:"" hidden:""`
}

// versionCmd prints the version.
type versionCmd struct{}

// Run prints one line: version, compiler and platform.
func (*versionCmd) Run(e *cli.Env) error {
	_, err := fmt.Fprintf(e.Stdout, "%s %s %s %s/%s\n", programName, cli.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// run runs the program in e and returns its exit code.
func run(e *cli.Env) int {
	p := cli.Program{Name: programName, Description: description, Commands: new(commands)}
	return p.Run(e)
}

func main() {
	e, release := cli.ProcessEnv(programName)
	code := run(e)
	release()
	os.Exit(code)
}
