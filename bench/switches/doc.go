// Package switches measures the cost of serving thousands of connections that are all active:
// by an operating system's thread for each, by a goroutine for each, and by Penstock's loops
// (package loop), one for each CPU.
//
// Each way is an echo server in a process of its own, and the load (package load) is another.
// A trial opens N connections; on each of them the load sends a message of 64 bytes, waits
// until it has come back, and sends the next. Counting is limited to a window in which all N
// connections have been accepted and are active. So opening and closing them is not in it.
//
// # Latency in a closed loop
//
// This is a closed loop: N connections have N requests under way, always, and a slow server is
// asked less often. By Little's law the mean latency is then N divided by the throughput:
// 10,000 connections at 100,000 requests per second cannot show a mean but 100 ms, whatever
// the server does. The mean is thus the throughput said in other words, most of it is time
// spent in queues. It does not show how long a client would wait that asks at a rate of its
// own. The median and the 99th percentile add how evenly the server deals with its
// connections.
//
// # Limits of the threads' server
//
// All servers are written in Go. A thread that comes back from a system call must get one of
// the runtime's GOMAXPROCS permits before it goes on. The threads' server has many more of
// them than there are CPUs, so that it is the kernel that schedules its threads. Still it pays
// for the runtime's accounts of them, which a server in C would not. The stack that counts in
// its memory is the one that Go gives a thread (or, with cgo, the C library). The kernel's own
// stack, 16 KiB on amd64, is no part of it.
package switches
