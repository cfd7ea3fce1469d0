//go:build race

// Package race tells tests whether they run under the race detector: it makes stacks deeper, has sync.Pool drop items
// at random and takes several times as long.
package race

// Enabled reports whether the race detector is built in.
const Enabled = true
