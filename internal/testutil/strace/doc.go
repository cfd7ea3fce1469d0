// Package strace counts the system calls of a running process in tests. It is for
// Linux only.
package strace
