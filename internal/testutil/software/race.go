//go:build race

package software

// raceEnabled: the programs under test are built like the tests.
const raceEnabled = true
