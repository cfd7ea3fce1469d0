// Package architecture tests what no single package can test of itself: which
// room may import which, what the library exports, and that the documents say
// what the code does. It has no code but its tests.
package architecture
