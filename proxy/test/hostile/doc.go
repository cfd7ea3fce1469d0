// Package hostile has clients misuse a load balancer: they send their first bytes one at a
// time and by the thousand, or others, or a part of them, and take all places and descriptors. It has no code but its tests.
//
// Each test runs a load balancer with loops of its own in the test's process, and looks at it
// from outside: honest clients are served all the time, in a bounded time; memory and
// descriptors are bounded, and are given back. Bounds on time are generous, ten times the
// expected time and more: they are no measurements.
package hostile
