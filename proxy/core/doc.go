// Package core serves the clients of a proxy on event loops.
//
// A [Group] has a core for each loop. A core accepts clients, connects each to a
// target, and has the two joined by a relay's driver; everything that belongs to it
// belongs to its loop's goroutine, so that nothing is locked. What the cores share
// is atomic: how many clients there are, and whether something is short. Who changes
// that so that others have something to do nudges them: each then looks at what
// stands, whatever it was nudged for.
//
// All cores accept from the same listening sockets. The kernel wakes one of those
// that wait, which says nothing of how busy they are, so a client whose core has
// more than its share is handed to the one that has the fewest before anything is
// done for it. From then on it stays there: both sockets of a session are of one
// loop.
package core
