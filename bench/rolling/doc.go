// Package rolling measures which clients are lost while endpoints restart, die or fall silent, behind Penstock and
// behind HAProxy and nginx. It is for Linux only.
//
// # Overview
//
// A [Scenario] defines the failures of endpoints and their times. In each round, every contestant has its own
// endpoints, and all contestants work at the same time. A failure affects one endpoint of every contestant within
// the same millisecond, because the endpoints with the same number are in one process. Other events of the
// machine, such as a compiler that takes the processors or a late timer, affect all contestants alike. If the
// contestants ran one after the other, each would have a different machine, and the measurement would take several
// times as long. A disadvantage is that they share the processors, so the load is small.
//
// An endpoint that is away has no listening socket, and resets its connections, as if its process had been killed.
// A frozen endpoint is in a process that was stopped by SIGSTOP, and the kernel accepts connections for it. The
// port stays bound all the time, so no other process can listen there.
//
// # Clients
//
// One process is the load. The load is open: each contestant gets clients at a steady rate, however long other
// clients take. Clients come from 17 addresses in turn, because one client alone does not prove that an endpoint
// has failed. A client connects, sends a request, and reads the whole answer. If it does not get all of that, it
// is lost: it was refused, reset or not answered, or it gave up at its timeout. Its wait is the time from the
// moment at which it should begin to the first byte of the answer.
//
// If a client was under way when an endpoint failed, it may have been connected to that endpoint already. Then no
// proxy could have saved it. Such lost clients are counted separately, as under way.
package rolling
