package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/penstock/penstock/proxy/display"
)

// env is everything that the program takes from the process it runs in, so
// that the command line is a function of it and tests can drive it.
type env struct {
	args   []string // without the program's name
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	lookup func(string) (string, bool) // tells empty from unset; nil: getenv has to do

	// stops delivers the signals that stop the program, asks those that ask for a
	// summary, of which many must not push one of the others out.
	stops, asks <-chan os.Signal

	// reloads has the signals that ask for a reload delivered, in place of stopping the
	// program, for good. It may be nil: there are none.
	reloads func() <-chan os.Signal

	// self is the process, from which admin takes no connections; 0, in a test: it does.
	self int
}

// processEnv returns the env of this process and what releases it.
func processEnv() (e *env, release func()) {
	// Room for a second signal while the first is being obeyed: one that finds
	// the channel full is dropped.
	stops, asks, reloads := make(chan os.Signal, 2), make(chan os.Signal, 1), make(chan os.Signal, 1)
	keepOnBrokenPipe()
	signal.Notify(stops, stopSignals()...)
	if asking := summarySignals(); asking != nil { // none would mean all
		signal.Notify(asks, asking...)
	}
	e = &env{
		args:   os.Args[1:],
		stdout: os.Stdout,
		stderr: os.Stderr,
		getenv: os.Getenv,
		lookup: os.LookupEnv,
		stops:  stops,
		asks:   asks,
		self:   os.Getpid(),
	}
	if reloading := reloadSignals(); reloading != nil { // as above
		e.reloads = func() <-chan os.Signal {
			signal.Reset(reloading...)
			signal.Notify(reloads, reloading...)
			return reloads
		}
	}
	return e, func() {
		signal.Stop(stops)
		signal.Stop(asks)
		signal.Stop(reloads)
	}
}

// complain writes the one line that says why the program ends.
func (e *env) complain(err error) {
	fmt.Fprintf(e.stderr, "penstock: %s\n", display.Lines(err.Error()))
}
