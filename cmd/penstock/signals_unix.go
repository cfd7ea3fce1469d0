//go:build unix

package main

import (
	"os"
	"syscall"
)

// summarySignals are the signals that ask for a summary on standard output.
func summarySignals() []os.Signal { return []os.Signal{syscall.SIGUSR1} }
