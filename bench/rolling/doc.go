// Package rolling measures which clients are lost while endpoints restart, die or fall silent,
// behind Penstock and behind HAProxy and nginx. It is for Linux only.
//
// # Overview
//
// A [Scenario] defines the failures of endpoints and their times. In each round of it every
// contestant has endpoints of its own, and all of them work at the same time. A failure
// affects the endpoint with the same number of every contestant within the same millisecond,
// because all of these are in one process. Other events of the machine (a compiler that takes
// the processors, a timer that is late) affect them all. Contestants one after the other would
// each have had a different machine, and the whole would have taken as many times as long. The
// price is that they share the processors: the load is small.
//
// An endpoint that is away has no listening socket, and its connections are reset, as when a
// process is killed. A frozen endpoint is stopped by SIGSTOP, with the whole process, and its
// kernel accepts connections for it. The port stays bound all the time, so no other process
// can listen at it.
//
// # Clients
//
// The load is an open one, of one process: each contestant has a client at a steady rate,
// however long the others take. Clients come from 17 addresses in turn: one client alone is no
// proof of an endpoint's failure. A client connects, sends a request and reads the answer to
// its end. It is lost if it does not get all of that: refused, reset, without an answer, or
// given up after a time. Its wait is from the moment at which it was to begin to the answer's
// first byte.
//
// A client that was under way when an endpoint failed may have been on that endpoint already,
// and then no proxy could have saved it. Such lost clients are counted apart, as under way.
package rolling
