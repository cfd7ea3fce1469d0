//go:build linux

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes of the programs.
const (
	ExitOK    = 0
	ExitError = 1 // it could not start, or sessions were cut
	ExitUsage = 2 // the command line is wrong

	ExitWarnings = 3 // of status --exit-code: something is wrong, but clients are served
	ExitOutage   = 4 // likewise: clients are not served

	ExitCondition = 3 // of mirror --fail-if: a condition holds
	ExitUnknown   = 4 // likewise: there is too little to know whether one does

	ExitGoOn = 3 // of sessions end: some of the sessions that were to end go on

	// ExitPipe is that of a command whose reader has gone, such as head(1), as shells have it of SIGPIPE, by which others end then.
	ExitPipe = 128 + int(syscall.SIGPIPE)
)

// UsageError is an invalid command line: exit code 2.
type UsageError struct{ Err error }

// Error returns the text of the cause.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError. Its text says how to correct the command.
func Usagef(format string, args ...any) error {
	return UsageError{fmt.Errorf(format, args...)}
}

// ExitCode is an error that carries an exit code and was reported already.
type ExitCode int

// Error names the code.
func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// A Program is a command line.
type Program struct {
	Name        string
	Description string
	Commands    any // pointer to a struct of commands, see kong
}

// Run runs the program in e and returns its exit code.
func (p *Program) Run(e *Env) int {
	err := p.dispatch(e)
	var code ExitCode
	var usage UsageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &code):
		return int(code)
	case abandoned(e.Stdout, err):
		return ExitPipe
	case errors.As(err, &usage):
		e.PrintError(err)
		return ExitUsage
	default:
		e.PrintError(err)
		return ExitError
	}
}

// abandoned reports whether an error is that the reader of the standard output has gone. EPIPE may be of a connection as well.
func abandoned(stdout io.Writer, err error) bool {
	out, ok := stdout.(*os.File)
	var at *fs.PathError
	return ok && errors.As(err, &at) && at.Path == out.Name() && errors.Is(at, syscall.EPIPE)
}

// Model returns the commands with their flags, for completion and man pages.
func (p *Program) Model() (*kong.Application, error) {
	k, err := p.parser(&Env{Stdout: io.Discard, Stderr: io.Discard}, nil)
	if err != nil {
		return nil, err
	}
	return k.Model, nil
}

// parser returns the parser of the command line. It calls helped when it has written a help text.
func (p *Program) parser(e *Env, helped func(int)) (*kong.Kong, error) {
	return kong.New(p.Commands,
		kong.Name(p.Name),
		kong.Description(p.Description),
		kong.Writers(e.Stdout, e.Stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Exit(helped),
		kong.Bind(e),
	)
}

func (p *Program) dispatch(e *Env) error {
	helped := false
	k, err := p.parser(e, func(int) { helped = true })
	if err != nil {
		return err
	}
	ctx, err := k.Parse(normalizeArgs(e.Args))
	switch {
	case helped: // kong goes on after Exit, and reports missing arguments
		return nil
	case abandoned(e.Stdout, err): // of a help text
		return err
	case err != nil:
		return UsageError{explain(p.Name, err)}
	}
	return ctx.Run()
}

// normalizeArgs translates the usual ways to ask for help or for the version.
func normalizeArgs(args []string) []string {
	if len(args) == 0 {
		return []string{"--help"}
	}
	switch args[0] {
	case "help":
		return normalizeArgs(append(args[1:len(args):len(args)], "--help"))
	case "--version", "-version", "-v", "-V":
		return append([]string{"version"}, args[1:]...)
	}
	return args
}

// Errors of kong for a flag without a value, for a negative number in place of an argument, and for a value that looks like a flag.
var (
	negative  = regexp.MustCompile(`unknown flag (-\d+)(, did you mean .*)?$`)
	noValue   = regexp.MustCompile(`expected \S+ value but got "EOL" \(<EOL>\)`)
	flagValue = regexp.MustCompile(`expected \S+ value but got "(-[^"]*)" \([^)]*\); perhaps try (.*)\?`)
)

// explain adds the help command to kong's parse error.
func explain(program string, err error) error {
	help := program + " --help"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		help = parse.Context.Selected().FullPath() + " --help"
	}
	line := strings.ReplaceAll(err.Error(), "\n", " ")
	line = noValue.ReplaceAllString(line, "a value is missing")
	line = negative.ReplaceAllString(line, "$1 is negative: write 0 or more")
	line = flagValue.ReplaceAllString(line, `"$1" looks like a flag: write $2 if it is a value`)
	return fmt.Errorf("%s (see: %s)", line, help)
}
