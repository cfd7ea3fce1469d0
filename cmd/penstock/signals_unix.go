//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// stopSignals are the signals that stop accepting and drain; the second one
// that arrives ends the program at once. SIGHUP is one of them, for a terminal
// that goes away, unless it was ignored from the beginning: see nohup(1).
func stopSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// reloadSignals are the signals that have the configuration read again, where there is
// one: also if they were ignored from the beginning, for they are sent on purpose then.
func reloadSignals() []os.Signal { return []os.Signal{syscall.SIGHUP} }

// summarySignals are the signals that ask for a summary on standard output.
func summarySignals() []os.Signal { return []os.Signal{syscall.SIGUSR1} }

// keepOnBrokenPipe keeps the Go runtime from ending the program when the reader
// of its standard output or error is gone: a log that nobody reads must not cost
// connections. (Not signal.Ignore, which processes that it starts inherit.)
func keepOnBrokenPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
