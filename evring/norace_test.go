//go:build !race

package evring_test

const raceEnabled = false
