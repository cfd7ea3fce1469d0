package main

import (
	"os"
	"slices"
	"syscall"
)

// stopSignals are the signals that stop accepting and drain; the second one
// that arrives ends the program at once.
func stopSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

func isSummary(s os.Signal) bool { return slices.Contains(summarySignals(), s) }
