//go:build race

// Package race tells tests whether they run under the race detector, which makes stacks deeper, makes sync.Pool
// drop items at random and takes several times as long.
package race

// Enabled reports whether the race detector is built in.
const Enabled = true
