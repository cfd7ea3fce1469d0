// Package reactor is an epoll loop for the benchmark's own ends of a connection. These share
// the machine with the measured proxies, so their cost hides the cost of the proxies. So there
// is one thread for many connections, level-triggered events, and nothing between an event and
// the system call that answers it.
package reactor
