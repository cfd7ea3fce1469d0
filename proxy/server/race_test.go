//go:build race

package server_test

// raceEnabled: the flows' own ends take so long for their bytes that many of them starve each other.
const raceEnabled = true
