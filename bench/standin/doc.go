// Package standin stands in for penstock run and penstock proxy in the tests of packages that
// measure them. It is a part of their own test binaries: a program that was built would have to
// be found first.
package standin
