// Package reactor is an epoll loop for the benchmark's own ends of a
// connection, which share the machine with the proxies that are measured: what
// they cost hides what those cost. So there is one thread for many connections,
// level-triggered events, and nothing between an event and the system call that
// answers it.
package reactor
