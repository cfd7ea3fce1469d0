//go:build linux

package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/display"
)

// Env is everything that the program takes from its process, so that the command line is a
// function of it and tests can drive it.
type Env struct {
	name   string   // of the program, for its messages; "" is penstock
	Args   []string // without the program's name
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
	lookup func(string) (string, bool) // distinguishes empty from unset; nil: getenv is used

	// Stops delivers the signals that stop the program.
	Stops <-chan os.Signal

	// Reloads starts the delivery of SIGHUP, even if it was ignored from the beginning: then it
	// is sent on purpose. From then on it no longer stops the program. nil: there is none.
	Reloads func() <-chan os.Signal

	// Reopens delivers SIGUSR1, by which logs are opened again; nil: there is none.
	Reopens <-chan os.Signal

	// Self is this process, from which admin refuses connections; 0, in a test: it does not.
	Self int
}

// ProcessEnv returns the env of this process and a function that releases it.
func ProcessEnv(name string) (e *Env, release func()) {
	// Room for a second signal while the first is handled: a signal that finds the channel
	// full is dropped.
	stops, reloads, reopens := make(chan os.Signal, 2), make(chan os.Signal, 1), make(chan os.Signal, 1)
	survive()
	signal.Notify(reopens, syscall.SIGUSR1)
	signal.Notify(stops, stopSignals()...)
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
		signal.Reset(syscall.SIGHUP)
		signal.Notify(reloads, syscall.SIGHUP)
		return reloads
	}
	return e, func() {
		signal.Stop(stops)
		signal.Stop(reloads)
	}
}

// PrintError writes one line with the cause for which the program ends.
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

// stopSignals are the signals that stop accepting and drain; the second one that arrives ends
// the program at once. SIGHUP is one of them, for a closed terminal, unless it was ignored
// from the beginning: see nohup(1).
func stopSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// survive keeps two signals from ending the program. SIGPIPE comes when the reader of its
// standard output or error is gone: a log without a reader must not cost connections. SIGUSR1 has
// logs opened again, and does nothing where there are none. (Not signal.Ignore, which child
// processes inherit.)
func survive() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGUSR1) }

// usualWidth is the width of a terminal that does not report its own.
const usualWidth = 80

// TerminalWidth returns the columns of the terminal that w is, and false if it
// is none or cannot move its cursor.
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

// Descriptors returns the soft limit RLIMIT_NOFILE, which the Go runtime has raised to the
// hard one.
func Descriptors() int {
	n, err := sys.RlimitNoFile()
	if err != nil || n > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(n)
}

// Affordable returns the number of connections that n descriptors allow: two for each, less a
// sixty-fourth for everything else. With many loops that rest is more: each loop has two, and one
// in reserve. Pipes and mirrors are not counted: they get what connections leave, and give it back when connections need it.
func Affordable(n, loops int) int {
	rest := min(max(n/64, min(64, n*4/5)), 1024)
	rest = max(rest, sys.KeptDescriptors(n)+20+4*loops)
	return max((n-rest)/2, 1)
}

// AffordableByDefault is Affordable with the default number of loops.
func AffordableByDefault(n int) int { return Affordable(n, DefaultLoops()) }

// DefaultLoops returns the number of event loops: one for each CPU.
func DefaultLoops() int { return runtime.GOMAXPROCS(0) }
