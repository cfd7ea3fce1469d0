// Package standin replaces penstock run and penstock proxy in the tests of packages that measure them. It is a
// part of the test binaries, because tests would have to find a separate program first.
package standin
