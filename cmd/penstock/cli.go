package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// The program's exit codes.
const (
	exitOK    = 0
	exitError = 1 // it could not start, or sessions were cut
	exitUsage = 2 // the command line is wrong
)

const description = `A layer 4 proxy that moves bytes between sockets by splice(2) through pooled kernel pipes.

Forward a port to a server:

    penstock proxy --listen :8080 --to 10.0.0.5:80

Share connections between two servers, the next one when one refuses:

    penstock proxy --listen :8080 --to 10.0.0.5:80 --to 10.0.0.6:80

Every flag of a command:

    penstock proxy --help`

// cli is the command line.
type cli struct {
	Proxy   proxyCmd   `cmd:"" help:"Forward connections to targets, without a configuration file."`
	Demo    demoCmd    `cmd:"" help:"Show it at work, with nothing else on the machine: origin, load, proxy, report."`
	Version versionCmd `cmd:"" help:"Print the version of this program."`
	Part    partCmd    `cmd:"" hidden:""`
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
	args := e.args
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := k.Parse(args)
	switch {
	case helped: // kong goes on after Exit, and complains of what is missing
		return nil
	case err != nil:
		return usageError{explain(err)}
	}
	return ctx.Run()
}

// explain adds to kong's parse error where to find what to write instead.
func explain(err error) error {
	help := "penstock --help"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		help = "penstock " + parse.Context.Selected().Name + " --help"
	}
	line := strings.ReplaceAll(err.Error(), "\n", " ")
	return fmt.Errorf("%s (see: %s)", line, help)
}
