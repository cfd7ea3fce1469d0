//go:build linux

package cli

import (
	"math"
	"runtime"

	"github.com/penstock/penstock/internal/sys"
)

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
// hundredth for everything else. With many loops that rest is more: each loop has two, and one
// in reserve. Pipes are not counted: they are given back when connections need the
// descriptors.
func Affordable(n, loops int) int {
	rest := min(max(n/100, 32), 1024)
	rest = max(rest, 20+4*loops)
	return max((n-rest)/2, 1)
}

// AffordableByDefault is Affordable with the default number of loops.
func AffordableByDefault(n int) int { return Affordable(n, DefaultLoops()) }

// DefaultLoops returns the number of event loops: one for each CPU.
func DefaultLoops() int { return runtime.GOMAXPROCS(0) }
