package main

// benchCmd groups what is measured.
type benchCmd struct {
	Run      benchRunCmd `cmd:"" default:"withargs" help:"Measure proxies against each other: what penstock bench does without a command."`
	Switches switchesCmd `cmd:"" help:"Threads, goroutines and loops under thousands of connections."`
	Claims   claimsCmd   `cmd:"" help:"The page of claims, with fresh figures."`
}

// benchRunCmd measures proxies against each other.
type benchRunCmd struct {
	Quick     bool     `help:"A subset that takes about a minute: bulk-8, echo-64-64, connections and correctness, of direct, penstock, io.Copy and haproxy-splice-2; 4 rounds of 0.4 s."`
	Scenarios []string `placeholder:"NAME" help:"What to measure: bulk-1, bulk-8, bulk-64, echo-64-1, echo-64-64, echo-4096-1, echo-4096-64, connections, idle, correctness, mix; or the beginning of a name for all that share it: bulk, echo (default: all)."`
	Peers     []string `placeholder:"NAME" help:"Whom to measure: direct, penstock, penstock-splice, penstock-copy, io.Copy, io.Copy-copying, haproxy-1, haproxy-2, haproxy-splice-1, haproxy-splice-2, nginx, envoy, or all that are installed (default: direct, penstock, io.Copy, io.Copy-copying, and of haproxy-2, haproxy-splice-2, nginx and envoy those that are installed)."`
	Baseline  string   `default:"io.Copy" placeholder:"NAME" help:"Whom to measure each of them beside (default: ${default})."`
	Rounds    *int     `placeholder:"N" help:"Rounds; mix takes half of them, idle a quarter; an even number lets each go first as often (default: 6)."`
	Seconds   *float64 `placeholder:"S" help:"Seconds of each trial; mix takes three times as long (default: 0.5)."`

	IdleSessions *int              `placeholder:"N" help:"Sessions that rest in idle (default: 2000, or what RLIMIT_NOFILE allows)."`
	Binary       map[string]string `placeholder:"NAME=PATH" mapsep:"none" help:"An executable to use: haproxy=PATH, nginx=PATH, envoy=PATH; repeats."`
	Syscalls     bool              `default:"true" negatable:"" help:"Count system calls in trials of their own, if perf or strace is here."`
	PrintConfigs bool              `help:"Print the configurations that the contestants would get, and end."`

	JSON   string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	SVG    string `name:"svg" placeholder:"FILE" help:"Draw the ratios."`
	Format string `default:"text" enum:"text,markdown" placeholder:"text|markdown" help:"Of the report (default: ${default})."`

	MaxFailed  int64   `default:"0" placeholder:"N" help:"Failures that Penstock may have in the mix; more are exit code 1 (default: ${default})."`
	MaxChatP99 timeout `name:"max-chat-p99" default:"500ms" placeholder:"TIME" help:"What the 99th percentile of a chat's latency may be through Penstock in the mix; more is exit code 1 (default: ${default}; 0: anything)."`
	MinBulk    float64 `default:"10" placeholder:"MB" help:"MB/s that the mix's streams must reach through Penstock; less is exit code 1 (default: ${default})."`
}

// Help is kong's text below the summary.
func (*benchRunCmd) Help() string {
	return `The word run may be left out: penstock bench --quick

Beside it there are

    penstock bench switches    threads, goroutines and loops under thousands of connections
    penstock bench claims      the page of claims, with fresh figures`
}
