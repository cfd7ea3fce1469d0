package main

import (
	"errors"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/penstock/penstock/proxy/cli"
)

// benchRunCmd measures proxies against each other.
type benchRunCmd struct {
	programFlag

	Quick     bool     `help:"A subset that takes about a minute: bulk-8, echo-64-64, connections and correctness, of direct, penstock, io.Copy and haproxy-splice-2; 4 rounds of 0.4 s."`
	Scenarios names    `placeholder:"NAME,..." help:"Scenarios to measure: bulk-1, bulk-8, bulk-64, echo-64-1, echo-64-64, echo-4096-1, echo-4096-64, connections, idle, correctness, mix; or the beginning of a name for all that share it: bulk, echo (default: all)."`
	Peers     names    `placeholder:"NAME,..." help:"Contestants: direct, penstock, penstock-splice, penstock-copy, penstock-busy-poll, penstock-run, penstock-run-realistic, penstock-run-reporting, penstock-run-lane (root only), penstock-run-1-loop, penstock-run-1-cpu, penstock-run-plain-pages, penstock-run-mlock, relay (a Go proxy by package relay), io.Copy, io.Copy-copying, haproxy-1, haproxy-2, haproxy-splice-1, haproxy-splice-2, haproxy-splice-1-defaults, haproxy-splice-2-defaults (pipes of HAProxy's own size, not 1 MiB), nginx, envoy, or all that are installed (default: direct, penstock, penstock-busy-poll, io.Copy, io.Copy-copying, and those that are installed of the first four haproxy-*, nginx and envoy). One that is named and never starts is exit code 1."`
	Baseline  string   `default:"penstock" placeholder:"NAME" help:"Contestant beside which each of them is measured, the base of ratios; if it fails that is exit code 1 (default: ${default})."`
	Rounds    *int     `placeholder:"N" help:"Rounds; mix takes half of them, idle 3 at most; an even number lets each go first as often (default: 6)."`
	Seconds   *float64 `placeholder:"S" help:"Seconds of each trial; mix takes three times as long (default: 0.5)."`

	IdleSessions *int              `placeholder:"N" help:"Sessions that rest in idle, for 10 s in each round of each contestant (default: 2000, or as many as RLIMIT_NOFILE allows)."`
	Binary       map[string]string `placeholder:"NAME=PATH" mapsep:"none" help:"An executable to use: haproxy=PATH, nginx=PATH, envoy=PATH; repeats."`
	Syscalls     bool              `default:"true" negatable:"" help:"Count system calls in trials of their own, if perf or strace is here."`
	PrintConfigs bool              `help:"Print the configurations that the contestants would get, and end."`

	JSON   string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	SVG    string `name:"svg" placeholder:"FILE" help:"Draw the ratios."`
	Format string `default:"text" enum:"text,markdown" placeholder:"text|markdown" help:"Of the report (default: ${default})."`

	MaxFailed  *int64       `placeholder:"N" help:"Failures that Penstock may have in the mix; more are exit code 1 (default: 0)."`
	MaxChatP99 *cli.Timeout `name:"max-chat-p99" placeholder:"TIME" help:"Bound of the 99th percentile of a chat's latency through Penstock in the mix; more is exit code 1 (default: 500ms; 0: anything)."`
	MinBulk    *float64     `placeholder:"MB" help:"MB/s that the mix's streams must reach through Penstock; less is exit code 1 (default: 10)."`
}

// Help is kong's text below the summary.
func (*benchRunCmd) Help() string {
	return `The word run may be left out: penstock-bench --quick

Beside it there are

    penstock-bench idle        what thousands of idle sessions cost, and messages over a few of them
    penstock-bench switches    threads, goroutines and loops under thousands of connections
    penstock-bench write       pieces of data to one connection, by gathered writes and otherwise
    penstock-bench balancer    what a configuration file costs: penstock run beside penstock proxy
    penstock-bench incident    endpoints fail under load, without protection and with
    penstock-bench rolling     endpoints restart, die and fall silent: clients lost, beside HAProxy and nginx
    penstock-bench reload      changing thousands of listeners and endpoints while they serve
    penstock-bench lane        sessions that have left user space, beside HAProxy, nginx, Envoy, io.Copy
    penstock-bench tls         handshakes and messages of a listener that terminates TLS, beside HAProxy's
    penstock-bench mirror      what a mirror to a healthy, dead, frozen and slow shadow costs
    penstock-bench rewrite     masks of card numbers, tokens and addresses, and a module, beside splicing and copying
    penstock-bench iperf3      one flow of iperf3 through proxies
    penstock-bench soak        stalls, resets and half-closes at random, and everything accounted for
    penstock-bench verdict     slow sessions, whose causes are made: how many verdicts are right
    penstock-bench claims      the page of claims, with fresh figures
    penstock-bench shares      where the CPU time of a run went, from samples of perf
    penstock-bench echo-servers    the same echo server on Penstock's loops and other libraries

idle takes about 12 s for every contestant in each of its 3 rounds, and for the
baseline twice; leave it out by naming other --scenarios.

While it runs, configurations and sockets are in a directory penstock-bench-*
below TMPDIR (/tmp), which only SIGKILL leaves behind.`
}

// names is the value of a flag that lists names and repeats. An empty name is
// refused: an empty list would mean everything.
type names []string

// Decode is called by kong for each time that the flag is given.
func (n *names) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("name", &text); err != nil {
		return err
	}
	for name := range strings.SplitSeq(text, ",") {
		if name == "" {
			return errors.New("a name is empty: write NAME or NAME,NAME, or leave the flag out for the default")
		}
		*n = append(*n, name)
	}
	return nil
}
