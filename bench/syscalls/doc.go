// Package syscalls counts the system calls of running processes with a tool of the machine:
// perf or strace. Being counted costs a process time, by strace very much of it, so a run that
// is counted is not timed. It is for Linux only.
package syscalls
