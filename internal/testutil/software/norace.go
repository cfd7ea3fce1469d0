//go:build !race

package software

const raceEnabled = false
