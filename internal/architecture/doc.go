// Package architecture tests what no single package can test about itself: which package may import which, the
// exported API of the library, and that the documents agree with the code. It has no code but its tests.
package architecture
