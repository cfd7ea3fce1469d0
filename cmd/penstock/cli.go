package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// The program's exit codes.
const (
	exitOK    = 0
	exitError = 1 // it could not start, or sessions were cut
	exitUsage = 2 // the command line is wrong

	exitWarnings = 3 // of status --exit-code: something is wrong, but clients are served
	exitOutage   = 4 // likewise: clients are not served
)

const description = `A layer 4 proxy that moves bytes between sockets by splice(2) through pooled kernel pipes.

Forward a port to a server:

    penstock proxy --listen :8080 --to 10.0.0.5:80

Share connections between two servers, the next one when one refuses:

    penstock proxy --listen :8080 --to 10.0.0.5:80 --to 10.0.0.6:80

Balance load as a file says, and change to another one while it runs:

    penstock run penstock.yaml
    penstock reload --config penstock.yaml

Every flag of a command:

    penstock proxy --help`

// cli is the command line.
type cli struct {
	Proxy    proxyCmd    `cmd:"" help:"Forward connections to targets, without a configuration file."`
	Run      runCmd      `cmd:"" help:"Balance load as a configuration file says."`
	Reload   reloadCmd   `cmd:"" help:"Have what runs read its configuration again, for good or until it is confirmed."`
	Confirm  confirmCmd  `cmd:"" help:"Have the configuration stay that waits to be confirmed."`
	Rollback rollbackCmd `cmd:"" help:"Return to the configuration before."`
	Check    checkCmd    `cmd:"" help:"Say everything that is wrong with a configuration, and what to write instead."`
	Config   configCmd   `cmd:"" help:"Print a configuration in one piece, with all defaults."`
	Fmt      fmtCmd      `cmd:"" help:"Print a configuration in the one way to write it, or write it so. It tells problems of syntax alone; check tells all."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON Schema of a configuration, for editors."`
	Plan     planCmd     `cmd:"" help:"What a configuration would change in what runs, and how many connections that touches."`
	Status   statusCmd   `cmd:"" help:"What runs: listeners, upstreams, endpoints, connections."`
	Drain    drainCmd    `cmd:"" help:"Have a listener, an endpoint or all of what runs get no more clients."`
	Weight   weightCmd   `cmd:"" help:"Change the weight of an endpoint of what runs."`
	Split    splitCmd    `cmd:"" help:"Change the percentages of a split of what runs."`
	Demo     demoCmd     `cmd:"" help:"Show it at work, with nothing else on the machine: origin, load, proxy, report."`
	Bench    benchCmd    `cmd:"" help:"Measure proxies side by side; switches and claims are its parts."`
	Doctor   doctorCmd   `cmd:"" help:"What this host and this process can do, what is missing, what that costs, what mends it."`
	Version  versionCmd  `cmd:"" help:"Print the version of this program."`
	Part     partCmd     `cmd:"" hidden:""`
}

// usageError is a command line that cannot be meant: exit code 2.
type usageError struct{ error }

// usagef makes a usageError. Its text says what to write instead.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// exitCode is an error that carries an exit code and was reported already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// run runs the program in e and returns its exit code.
func run(e *env) int {
	err := dispatch(e)
	var code exitCode
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		e.complain(err)
		return exitUsage
	default:
		e.complain(err)
		return exitError
	}
}

func dispatch(e *env) error {
	var c cli
	helped := false
	k, err := kong.New(&c,
		kong.Name("penstock"),
		kong.Description(description),
		kong.Writers(e.stdout, e.stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Exit(func(int) { helped = true }),
		kong.Bind(e),
	)
	if err != nil {
		return err
	}
	ctx, err := k.Parse(spelled(e.args))
	switch {
	case helped: // kong goes on after Exit, and complains of what is missing
		return nil
	case err != nil:
		return usageError{explain(err)}
	}
	return ctx.Run()
}

// spelled spells out what people write to ask for help or for the version.
func spelled(args []string) []string {
	if len(args) == 0 {
		return []string{"--help"}
	}
	switch args[0] {
	case "help":
		return spelled(append(args[1:len(args):len(args)], "--help"))
	case "bench":
		if len(args) == 2 && (args[1] == "--help" || args[1] == "-h") {
			return []string{"bench", "run", "--help"} // whose flags bench takes
		}
	case "--version", "-version", "-v", "-V":
		return append([]string{"version"}, args[1:]...)
	}
	return args
}

// What kong says of a flag without a value, and of a value that looks like a flag.
var (
	noValue   = regexp.MustCompile(`expected \S+ value but got "EOL" \(<EOL>\)`)
	flagValue = regexp.MustCompile(`expected \S+ value but got "(-[^"]*)" \([^)]*\); perhaps try (.*)\?`)
)

// explain adds to kong's parse error where to find what to write instead.
func explain(err error) error {
	help := "penstock --help"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		help = parse.Context.Selected().FullPath() + " --help"
	}
	line := strings.ReplaceAll(err.Error(), "\n", " ")
	line = noValue.ReplaceAllString(line, "a value is missing")
	line = flagValue.ReplaceAllString(line, `"$1" looks like a flag: write $2 if it is a value`)
	return fmt.Errorf("%s (see: %s)", line, help)
}
