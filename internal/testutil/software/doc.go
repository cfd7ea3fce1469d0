// Package software builds the program under test, and runs real servers and clients beside it, each on
// loopback, in its own directory, and gone when the test ends.
//
// If a program is not installed its test is skipped, or fails if CI is set: .ci/run installs all of them. The
// package is for Linux only.
package software
