//go:build !unix

package main

import "os"

// summarySignals is empty: there is no SIGUSR1 here.
func summarySignals() []os.Signal { return nil }

// keepOnBrokenPipe does nothing: there is no SIGPIPE here.
func keepOnBrokenPipe() {}
