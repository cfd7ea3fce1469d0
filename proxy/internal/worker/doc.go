// Package worker serves the clients of a proxy on event loops.
//
// A [Group] has a worker for each loop. A worker accepts clients, connects each to an
// endpoint, and has the two joined by a relay's driver. Everything of a worker belongs to its
// loop's goroutine, so that nothing is locked. The shared state of the workers is atomic: the
// number of clients, and whether a resource is short. A change of it that gives others work
// wakes them: each then looks at the whole shared state, whatever the reason.
//
// All workers accept from the same listening sockets. The kernel wakes any of the waiting loops, however busy it is. So a
// worker with more than its share of clients hands a new client to the worker with the fewest, before anything is done for
// it. From then on it stays there: both sockets of a session are of one loop.
//
// # Decisions
//
// A client is treated by the [Service] of the socket that it came in at, a snapshot that may be replaced at any time and that
// the client keeps: its [Admitter] admits it, its [Preread] is the data that it has to send first, and a [Search] finds its
// endpoint. A [Client] is
//
//	accepted ── CanAccept, Admit, with whether the source is known (accept.go)
//	   │        handed to another worker, or waiting for a place under the limit
//	header      of the PROXY protocol, consumed to the byte (preread.go)
//	   │        AdmitSource, if it was not
//	hello, data peeked, and left in the socket (preread.go, postgres.go)
//	   │
//	searching   Connect, Resolve, Pause, Park, ...   or Respond, GiveUp (refusal.go), Handover (offload.go)
//	   │
//	header      written to the endpoint (connect.go)
//	   │        Reached
//	joined      by the relay, which splices the peeked bytes, too (session.go)
//	   │        Binding.Ended, verdict, session log, traces (observer.go); Released
//	 gone
//
// and the Client is used for another one once it is joined. A session keeps nothing of all that but its limits
// ([relay.Limits]); their Of may be its [Binding].
//
// A session leaves user space in lane.go (askLane, offer) and comes back there (ReturnLane, comeBack, arrive);
// lanesession.go is its part in the lane, lanepark.go gives back the memory of sessions that stay away.
package worker
