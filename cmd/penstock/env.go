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

	// signals delivers SIGINT, SIGTERM and, where there is one, SIGUSR1.
	signals <-chan os.Signal
}

// processEnv returns the env of this process and what releases it.
func processEnv() (e *env, release func()) {
	// Room for a burst: a signal that finds the channel full is dropped, and
	// the second SIGTERM, the one that ends at once, must not be.
	signals := make(chan os.Signal, 16)
	keepOnBrokenPipe()
	signal.Notify(signals, append(stopSignals(), summarySignals()...)...)
	e = &env{
		args:    os.Args[1:],
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		getenv:  os.Getenv,
		signals: signals,
	}
	return e, func() { signal.Stop(signals) }
}

// complain writes the one line that says why the program ends.
func (e *env) complain(err error) {
	fmt.Fprintf(e.stderr, "penstock: %v\n", err)
}
