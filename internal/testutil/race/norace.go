//go:build !race

// Package race tells tests whether they run under the race detector.
package race

// Enabled reports whether the race detector is built in.
const Enabled = false
