//go:build !unix

package main

import (
	"os"
	"syscall"
)

// stopSignals are the signals that stop accepting and drain; the second one
// that arrives ends the program at once.
func stopSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// summarySignals is empty: there is no SIGUSR1 here.
func summarySignals() []os.Signal { return nil }

// reloadSignals is empty: there is no SIGHUP here.
func reloadSignals() []os.Signal { return nil }

// keepOnBrokenPipe does nothing: there is no SIGPIPE here.
func keepOnBrokenPipe() {}
