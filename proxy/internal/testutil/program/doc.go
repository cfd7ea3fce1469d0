// Package program runs penstock itself in tests, in a process of its own.
package program
