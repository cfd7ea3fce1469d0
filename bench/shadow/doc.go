// Package shadow measures the cost of a mirror for the sessions that are mirrored: throughput and
// latency through penstock run with no mirror, and with one to a healthy, a dead, a frozen and a
// slow shadow; and once more with none, whose difference is noise. And it measures the cost of masks, and of
// a module of WebAssembly, for the sessions that are rewritten, in the same way.
package shadow
