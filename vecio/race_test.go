//go:build race

package vecio_test

func init() { raceEnabled = true }
