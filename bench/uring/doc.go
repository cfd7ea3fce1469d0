// Package uring measures io_uring(7) beside the epoll of package loop. It has its own rings in memory that is
// shared with the kernel. No program uses it. docs/decisions.md says why, with the figures:
//
//	go test ./bench/uring -run '^$' -bench . -benchtime 20x
//
// A [Ring] belongs to one goroutine. Once it is enabled, it belongs to the thread that has enabled it
// (IORING_SETUP_SINGLE_ISSUER), so the goroutine must be locked to that thread. Only that thread does the work for
// completions, while it is in [Ring.Submit] or [Ring.Wait] (IORING_SETUP_DEFER_TASKRUN). Linux has both flags
// since 6.1. An older kernel refuses the ring.
//
// On systems other than Linux the package is empty.
package uring
