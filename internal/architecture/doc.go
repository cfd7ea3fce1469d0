// Package architecture tests properties that no single package can test of itself: which
// package may import which, the exported API of the library, and that the documents agree with
// the code. It has no code but its tests.
package architecture
