//go:build race

package software

// raceEnabled says how to build the programs under test: like the tests.
const raceEnabled = true
