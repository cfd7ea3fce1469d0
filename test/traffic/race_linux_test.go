//go:build race

package traffic

// raceEnabled: the programs under test are built like the tests.
const raceEnabled = true
