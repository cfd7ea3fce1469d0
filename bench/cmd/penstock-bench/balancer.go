package main

// balancerCmd compares penstock run with penstock proxy.
type balancerCmd struct {
	programFlag

	Quick     bool     `help:"bulk-8, echo-64-64 and connections; 4 rounds of 0.4 s."`
	Scenarios names    `placeholder:"NAME,..." help:"Scenarios to measure, as in penstock-bench run (default: bulk, echo, connections, idle, correctness)."`
	Rounds    *int     `placeholder:"N" help:"Rounds; an even number lets each go first as often (default: 8)."`
	Seconds   *float64 `placeholder:"S" help:"Seconds of each trial (default: 0.5)."`
	Plain     bool     `help:"Connections begin with no ClientHello: the realistic file then routes by source, and clients are not waited for."`
	Syscalls  bool     `default:"true" negatable:"" help:"Count system calls in trials of their own, if perf or strace is here."`
	Strict    bool     `help:"Exit code 1 where more than 5 % are between the two, or the bytes went another way."`

	PrintConfigs bool   `help:"Print the configurations that the contestants would get, and end."`
	JSON         string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	Format       string `default:"text" enum:"text,markdown" placeholder:"text|markdown" help:"Of the report (default: ${default})."`
}

// Help is kong's text below the summary.
func (*balancerCmd) Help() string {
	return `penstock run is measured right beside penstock proxy, which is told two addresses and
nothing else: once with the smallest file that works, once with a realistic one, which
has a route by the name in the ClientHello, an allow list, limits of the listener and of
each source, timeouts, health checks, outlier detection, a circuit breaker, and the
header of the PROXY protocol (version 2) sent to the server. --print-configs shows them.

Every connection begins with a ClientHello that nobody answers: the server throws it
away, and the PROXY header. Everybody gets the same bytes; penstock proxy and the
smallest file forward them without a look, and dial before they come. The bytes that
each of the two says to have spliced and copied are compared as well.`
}
