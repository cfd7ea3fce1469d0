// Package program has tests run penstock itself, in a process of its own.
package program
