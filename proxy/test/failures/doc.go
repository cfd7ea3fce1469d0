// Package failures has backends and networks fail for real, and looks at the clients of a load
// balancer. It has no code but its tests.
//
// Each test runs in a network of its own, with its own loops in the test's process:
//
//	the test's process                          the victim's host
//	  clients ── lo ── Penstock     route to
//	              10.98.0.1/30 ── 10.99.0.1 ──  10.98.0.2/30, and 10.99.0.1 on lo:
//	              │                             a process, killed, frozen, mute, ...
//	              │                             the other one's host
//	              10.98.0.5/30 ───────────────  10.98.0.6/30: a process that is well
//
// A process is killed and frozen, a route removed, a link taken down. All along a session
// with the other one echoes, and is not touched.
//
// Transparent listeners stand in the middle of a path, and clients know nothing of them:
//
//	the clients' host         the test's process           the servers' host
//	10.98.0.2/30  ─────────── 10.98.0.1/30 10.98.0.5/30 ── 10.98.0.6/30
//	  198.51.100.0/24 by        Penstock: takes what           198.51.100.7 on lo
//	  way of 10.98.0.1          comes from the left
//
// The programs that they need, ip(8) and nft(8), are installed by .ci/run; a test skips
// without it, or fails where CI is set.
package failures
