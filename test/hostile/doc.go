// Package hostile has clients do to a load balancer what they should not: send what is
// looked at first a byte at a time and by the thousand, or something else, or a part of it,
// and take what there is of places, turns and descriptors. It has no code but its tests.
//
// Each test runs a load balancer with loops of its own in the test's process, and looks at
// it from outside: honest clients are served all the time, in a bounded time; the turns of
// the loops say that nobody had them spin; memory and descriptors are bounded, and are given
// back; everybody who was refused was counted, by the reason. That times are generous, ten
// times and more of what is expected, makes them no measurements.
package hostile
