package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
)

// env is everything that the program takes from the process it runs in, so
// that the command line is a function of it and tests can drive it.
type env struct {
	args   []string // without the program's name
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string

	// stops delivers the signals that stop the program, asks those that ask for a
	// summary, of which many must not push one of the others out.
	stops, asks <-chan os.Signal
}

// processEnv returns the env of this process and what releases it.
func processEnv() (e *env, release func()) {
	// Room for a second signal while the first is being obeyed: one that finds
	// the channel full is dropped.
	stops, asks := make(chan os.Signal, 2), make(chan os.Signal, 1)
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
		stops:  stops,
		asks:   asks,
	}
	return e, func() {
		signal.Stop(stops)
		signal.Stop(asks)
	}
}

// complain writes the one line that says why the program ends.
func (e *env) complain(err error) {
	fmt.Fprintf(e.stderr, "penstock: %v\n", err)
}
