package main

import (
	"math"

	"github.com/penstock/penstock/internal/sys"
)

// descriptors returns RLIMIT_NOFILE, whose soft limit the Go runtime has raised to
// the hard one.
func descriptors() int {
	n, err := sys.RlimitNoFile()
	if err != nil || n > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(n)
}
