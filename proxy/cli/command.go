//go:build linux

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/display"
)

// Exit codes of the programs.
const (
	ExitOK    = 0
	ExitError = 1 // the program could not start, or sessions were cut
	ExitUsage = 2 // the command line is wrong

	ExitWarnings = 3 // status --exit-code: something is wrong, but clients are served
	ExitOutage   = 4 // status --exit-code: clients are not served

	ExitCondition = 3 // mirror --fail-if: a condition holds
	ExitUnknown   = 4 // mirror --fail-if: too little is known to judge a condition

	ExitGoOn = 3 // sessions end: some of the selected sessions continue

	// ExitPipe is the exit code of a command if the reader of its output, such as head(1), is gone. Shells report this
	// code for SIGPIPE, which ends other programs in this case.
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

// ExitCode is an exit code as an error that was already reported.
type ExitCode int

// Error returns the code as text.
func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// A Program is a command line.
type Program struct {
	Name        string
	Description string
	Commands    any // pointer to a struct of commands, see kong

	// Instead says what to write for unknown flags, such as flags of other programs.
	Instead map[string]string
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

// abandoned reports whether an error means that the reader of standard output is gone. EPIPE may also come from a
// connection.
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
		kong.Help(printHelp),
		kong.Exit(helped),
		kong.Bind(e),
	)
}

// printHelp also says where the flags of a command's default subcommand are described.
func printHelp(o kong.HelpOptions, ctx *kong.Context) error {
	err := kong.DefaultHelpPrinter(o, ctx)
	if at := ctx.Selected(); err == nil && at != nil && at.DefaultCmd != nil {
		_, err = fmt.Fprintf(ctx.Stdout, "\nFlags for the %s: %s --help\n", at.DefaultCmd.Name, at.DefaultCmd.FullPath())
	}
	return err
}

func (p *Program) dispatch(e *Env) error {
	helped := false
	k, err := p.parser(e, func(int) { helped = true })
	if err != nil {
		return err
	}
	ctx, err := k.Parse(normalizeArgs(e.Args))
	switch {
	case helped: // kong continues after Exit, and reports missing arguments
		return nil
	case abandoned(e.Stdout, err): // while a help text was written
		return err
	case err != nil:
		return UsageError{p.explain(err)}
	}
	for _, at := range ctx.Path {
		// A script has passed a variable that is not set. Without the flag, a command may select everything.
		if at.Flag != nil && at.Flag.Target.Kind() == reflect.String && at.Flag.Target.Len() == 0 {
			return Usagef("--%s is empty: write a value, or leave the flag out (see: %s --help)", at.Flag.Name, ctx.Selected().FullPath())
		}
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

// Errors of kong about a flag without a value, a negative number as an argument, and a value that looks like a flag.
var (
	negative  = regexp.MustCompile(`unknown flag (-\d+)(, did you mean .*)?$`)
	noValue   = regexp.MustCompile(`expected \S+ value but got "EOL" \(<EOL>\)`)
	unknown   = regexp.MustCompile(`^unknown flag (-\w)\b.*$`)
	fileWord  = regexp.MustCompile(`^unexpected argument (\S+\.(?:yaml|yml|json))$`)
	argValue  = regexp.MustCompile(`^<(\S+)>: "`)
	flagValue = regexp.MustCompile(`expected \S+ value but got "(-[^"]*)" \([^)]*\); perhaps try (.*)\?`)
)

// explain adds the help command, and what to write instead, to kong's parse error.
func (p *Program) explain(err error) error {
	line := strings.ReplaceAll(err.Error(), "\n", " ")
	help, config := p.Name+" --help", false
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		at := parse.Context.Selected()
		config = slices.ContainsFunc(at.Flags, func(f *kong.Flag) bool { return f.Name == "config" })
		if at == at.Parent.DefaultCmd && strings.HasPrefix(line, "unexpected argument ") && !fileWord.MatchString(line) {
			at = at.Parent // the word stands where a command does
		}
		help = at.FullPath() + " --help"
	}
	if flag := unknown.FindStringSubmatch(line); flag != nil && p.Instead[flag[1]] != "" {
		return fmt.Errorf("unknown flag %s: %s", flag[1], p.Instead[flag[1]])
	}
	line = argValue.ReplaceAllString(line, "$1 \"")
	if config {
		line = strings.Replace(line, `expected "<endpoint>"`, "write UPSTREAM/ENDPOINT, for example web/w1", 1)
		line = fileWord.ReplaceAllString(line, "unexpected argument $1: write --config $1 to name the configuration")
	}
	line = noValue.ReplaceAllString(line, "a value is missing")
	line = negative.ReplaceAllString(line, "$1 is negative: write 0 or more")
	line = flagValue.ReplaceAllString(line, `"$1" looks like a flag: write $2 if it is a value`)
	return fmt.Errorf("%s (see: %s)", line, help)
}

// Env is everything that the program takes from its process. The command line is then a function of Env, and tests can
// drive it.
type Env struct {
	name   string   // name of the program in messages; "" is penstock
	Args   []string // without the program's name
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
	lookup func(string) (string, bool) // distinguishes empty from unset; if nil, getenv is used

	// Stops delivers the signals that make the program stop accepting and drain, SIGHUP too unless the process ignored it at
	// its start. The second one ends the program at once.
	Stops <-chan os.Signal

	// Reloads starts the delivery of SIGHUP, even if the process ignored it at its start: then it is sent on purpose.
	// From then on SIGHUP no longer stops the program. Reloads may be nil.
	Reloads func() <-chan os.Signal

	// Reopens delivers SIGUSR1, which makes the program open its logs again. It may be nil.
	Reopens <-chan os.Signal

	// Self is this process, from which the admin API refuses connections. 0, in tests, refuses none.
	Self int
}

// ProcessEnv returns the env of this process and a function that releases it.
func ProcessEnv(name string) (e *Env, release func()) {
	// Room for a second signal while the first is handled: a signal that finds the channel
	// full is dropped.
	stops, reloads, reopens := make(chan os.Signal, 2), make(chan os.Signal, 1), make(chan os.Signal, 1)
	hangups, reloading := make(chan os.Signal, 1), new(atomic.Bool)
	survive()
	signal.Notify(reopens, syscall.SIGUSR1)
	signal.Notify(stops, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // else see nohup(1)
		signal.Notify(hangups, syscall.SIGHUP)
	}
	go func() { // SIGHUP always has this one receiver: between two it would end the process
		for s := range hangups {
			to := stops // for a closed terminal
			if reloading.Load() {
				to = reloads
			}
			select {
			case to <- s:
			default:
			}
		}
	}()
	e = &Env{
		name:   name,
		Args:   os.Args[1:],
		Stdout: os.Stdout,
		Stderr: os.Stderr,
		Getenv: os.Getenv,
		lookup: os.LookupEnv,
		Stops:  stops, Reopens: reopens,
		Self: os.Getpid(),
	}
	e.Reloads = func() <-chan os.Signal {
		reloading.Store(true)
		signal.Notify(hangups, syscall.SIGHUP)
		return reloads
	}
	return e, func() {
		signal.Stop(stops)
		signal.Stop(hangups)
		close(hangups)
	}
}

// PrintError writes one line that says why the program ends.
func (e *Env) PrintError(err error) {
	fmt.Fprintf(e.Stderr, "%s: %s\n", cmp.Or(e.name, "penstock"), display.Lines(err.Error()))
}

// Environment returns the lookup function for environment variables.
func (e *Env) Environment() func(name string) (value string, set bool) {
	if e.lookup != nil {
		return e.lookup
	}
	return func(name string) (string, bool) {
		value := e.Getenv(name)
		return value, value != ""
	}
}

// survive keeps two signals from ending the program. SIGPIPE comes when the reader of standard output or error is gone:
// a log without a reader must not cost connections. SIGUSR1 opens logs again, and does nothing without logs.
// (signal.Ignore would be inherited by child processes.)
func survive() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGUSR1) }

// usualWidth is the width of a terminal that does not report its own.
const usualWidth = 80

// TerminalWidth returns the columns of the terminal w. It returns false if w is no terminal, or one that cannot move
// its cursor.
func TerminalWidth(w io.Writer, getenv func(string) string) (int, bool) {
	f, ok := w.(*os.File)
	if !ok || getenv("TERM") == "dumb" {
		return 0, false
	}
	width, err := sys.TerminalWidth(int(f.Fd()))
	if err != nil {
		return 0, false
	}
	if width == 0 {
		width = usualWidth
	}
	return width, true
}

// Descriptors returns the soft limit RLIMIT_NOFILE. The Go runtime has raised it to the hard limit.
func Descriptors() int {
	n, err := sys.RlimitNoFile()
	if err != nil || n > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(n)
}

// Affordable returns the number of connections that n descriptors allow, at two descriptors each. A sixty-fourth is
// left for everything else, or more with many loops: four descriptors for each. Pipes and
// mirrors do not count: they get what connections leave, and give it back when connections need it.
func Affordable(n, loops int) int {
	rest := min(max(n/64, min(64, n*4/5)), 1024)
	rest = max(rest, sys.KeptDescriptors(n)+20+4*loops)
	return max((n-rest)/2, 1)
}

// AffordableByDefault is Affordable with the default number of loops.
func AffordableByDefault(n int) int { return Affordable(n, DefaultLoops()) }

// DefaultLoops returns the number of event loops: one for each CPU.
func DefaultLoops() int { return runtime.GOMAXPROCS(0) }
