// Package software builds the program under test and runs real servers and clients beside
// it: each on loopback, in a directory of its own, and gone when the test ends.
//
// A program that is not installed skips its test, and fails it where CI is set: .ci/run
// installs them all. It is for Linux only.
package software
