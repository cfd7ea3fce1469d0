// Package standin stands in for `penstock run` in the tests of what measures it, whose own
// binaries it is a part of: a program that was built would have to be found first.
package standin
