// Package worker serves the clients of a proxy on event loops.
//
// A [Group] has a worker for each loop. A worker accepts clients, connects each to an endpoint, and lets a relay's driver
// join the two. Everything in a worker belongs to its loop's goroutine, so that nothing is locked. The workers share some
// atomic state: the number of clients, and whether a resource is short. A change of this state that gives other workers
// something to do wakes them; each then looks at the whole shared state, whatever the reason.
//
// All workers accept from the same listening sockets. The kernel wakes any of the waiting loops, however busy it is. So a
// worker with more than its share of clients hands a new client to the worker with the fewest, before anything is done for
// it. From then on the client stays there: both sockets of a session are on one loop.
//
// # Decisions
//
// A client is treated by the [Service] of the socket at which it came in. The service is a snapshot: it may be replaced at
// any time, but the client keeps its own. The service's [Admitter] admits the client, its [Preread] says which data the
// client has to send first, and a [Search] finds an endpoint. A [Client] is
//
//	accepted ── CanAccept, Admit, with whether the source is known (accept.go)
//	   │        handed to another worker, or waiting for a place under the limit
//	header      of the PROXY protocol, consumed to the byte (preread.go)
//	   │        AdmitSource, if Admit did not know the source
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
// Once it is joined, its Client serves another client. A session keeps only its limits ([relay.Limits]); their Of may be
// its [Binding].
//
// A session leaves user space in lane.go (askLane, offer) and comes back there (ReturnLane, comeBack, arrive).
// lanesession.go is its part in the lane; lanepark.go gives back the memory of sessions that stay away.
package worker
