// Package bench measures proxies against each other.
//
// A Rig is an origin, a load and any number of contestants, each a process of
// its own on loopback, so that a contestant's processor time is its own and
// nobody else's. Contestants take turns in short rounds, because machines
// drift by more than proxies differ; what counts is the ratio of two
// contestants measured side by side, over several rounds.
//
// The rooms below it: traffic (what flows), origin (who serves it), load (who
// asks for it and checks it), rival (a proxy to compare with), process (the
// children and what they use) and report (medians, ratios, text).
package bench
