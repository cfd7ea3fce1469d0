// Package bench measures proxies against each other.
//
// A Rig is a server, a load and any number of contestants, each a process of
// its own, so that a contestant's processor time is its own and nobody else's.
// Machines drift by more than proxies differ, so what counts is the ratio of
// two contestants measured side by side, over several rounds.
//
// A Run is what `penstock bench` does: scenarios and contestants, each beside a
// baseline in every round, and the baseline beside itself, which shows how much
// of a ratio is noise. Rig.Measure is the demo's shorter way.
//
// The rooms below it: traffic (what flows), origin and sink (who serves it), load
// (who asks for it and checks it), rival and contestant (the proxies), process
// (the children and what they use), syscalls (counting theirs) and report
// (medians, ratios, tables, the picture).
package bench
