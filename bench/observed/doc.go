// Package observed is proxies that can be asked how their Go runtime fares, each
// to be run in a process of its own: Penstock's, and beside it two goroutines and
// their buffers for each session (package rival).
package observed
