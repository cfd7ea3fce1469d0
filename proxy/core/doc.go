// Package core serves the clients of a proxy on event loops.
//
// A [Group] has a core for each loop. A core accepts clients, connects each to an
// endpoint, and has the two joined by a relay's driver; everything that belongs to it
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
//
// # Who decides
//
// What is done for a client is said by the [Service] of the socket that it came in at,
// a snapshot that may be replaced at any time and that the client keeps: its [Admitter]
// says whether it may come in, its [Preread] what it has to send first, and a [Search]
// where it goes. On the way to its end a client is
//
//	accepted ── Room, Admit, which is told whether the source is known
//	   │        handed to another core, or waiting for a place under the limit
//	header      of the PROXY protocol, consumed to the byte
//	   │        AdmitSource, if it was not
//	hello, data peeked, and left in the socket
//	   │
//	searching   Connect, Resolve, Pause, Park, ...   or Respond, GiveUp, Handover
//	   │
//	preface     written to the endpoint
//	   │        Reached
//	joined      by the relay, which splices whatever was peeked
//	   │        Bond.Ended, Left
//	 gone
//
// and what it needs until it is joined is given to the next one then. A session has
// nothing of all that but what its limits are ([relay.Limits]), of which the Of may be
// what it is bound to ([Bond]).
package core
