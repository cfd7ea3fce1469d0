// Package traffic sends the traffic of real programs through penstock proxy:
// curl and nginx, and the example of the README. It has no code but its tests.
//
// Each test starts its own server on loopback, in a directory of its own, and compares the
// bytes that the programs have moved with penstock's summary. A program that is not installed
// skips its test, and fails it where CI is set: .ci/run installs them all.
package traffic
