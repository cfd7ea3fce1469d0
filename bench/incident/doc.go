// Package incident measures how clients fare in an incident: a load balancer passes
// requests on to a number of endpoints, and at a moment a third of these turn silent,
// slow or refusing, while the load goes on. It is for Linux only.
//
// # Overview
//
// All parts are processes of their own: one process is all endpoints, each of them
// listening at a port of its own and answering HTTP requests; `penstock run` with a file;
// and the load. In one of the compared files nothing protects the clients, in the
// others something does.
//
// The load is an open one: requests begin at a rate, evenly spaced, however slow the
// answers are, each on a connection of its own, and each is given up after a time. The
// time of a request counts from the moment at which it was to begin, and until it was
// answered, or failed: a client without an answer has waited for its timeout. So the
// mean is over the waits of all clients, and not only the happy ones.
//
// # The failures of an endpoint
//
//   - Silent: connections are accepted, and nothing is ever sent on them, whatever the
//     client does. The same holds for requests that are under way.
//   - Slow: answers come late by times that are exponentially distributed.
//   - Refusing: the socket does not listen any more, and open connections are reset, as
//     if the process had been killed.
//
// In the end all are as they were before; clients that still wait are answered.
package incident
