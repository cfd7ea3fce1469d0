// Package uring measures io_uring(7) beside the epoll of package loop, by rings of its own in memory that is shared
// with the kernel. No program uses it; docs/decisions.md says why, with the figures:
//
//	go test ./bench/uring -run '^$' -bench . -benchtime 20x
//
// A [Ring] belongs to one goroutine, and, once it is enabled, to the thread that has enabled it
// (IORING_SETUP_SINGLE_ISSUER): the goroutine must be locked to that thread. Work for completions is done by that
// thread alone, while it is in [Ring.Submit] or [Ring.Wait] (IORING_SETUP_DEFER_TASKRUN). Linux has both since 6.1;
// an older one refuses the ring.
//
// On systems other than Linux the package is empty.
package uring
