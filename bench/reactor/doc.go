// Package reactor is an epoll loop for the benchmark's own ends of a connection. These ends share the machine with
// the measured proxies, so their cost hides the cost of the proxies. That is why one thread serves many
// connections, events are level-triggered, and nothing is between an event and the system call that answers it.
package reactor
