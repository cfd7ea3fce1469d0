// Package uring has tests of what io_uring(7) does, for docs/decisions.md, which says why no program here uses it.
//
// A [Ring] belongs to one goroutine. Once it is enabled, it belongs to the thread that has enabled it
// (IORING_SETUP_SINGLE_ISSUER), so the goroutine must be locked to that thread. Only that thread does the work for
// completions, while it is in [Ring.Submit] or [Ring.Wait] (IORING_SETUP_DEFER_TASKRUN). Linux has both flags
// since 6.1. An older kernel refuses the ring.
//
// On systems other than Linux the package is empty.
package uring
