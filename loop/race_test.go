//go:build race

package loop_test

func init() { raceEnabled = true }
