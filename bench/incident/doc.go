// Package incident measures what clients see of an incident: a load balancer passes
// requests on to a number of endpoints, and at a moment a third of these turn silent,
// slow or refusing, while the load goes on. It is for Linux only.
//
// # What there is
//
// All parts are processes of their own: one that is all endpoints, each of which
// listens at a port of its own and answers HTTP requests; `penstock run` with a file;
// and the load. What is compared are files: one in which nothing protects the clients,
// and others.
//
// The load is an open one: requests begin at a rate, evenly spaced, however slow the
// answers are, each on a connection of its own, and each is given up after a time. How
// long one took counts from the moment at which it was to begin, and until it was
// answered, or failed: a client that is told nothing has waited for its timeout. So the
// mean is that of what all clients waited, and not of the happy ones.
//
// # What happens to an endpoint
//
//   - Silent: connections are accepted, and nothing more is ever said on them, whatever
//     the client does; that also befalls requests that are under way.
//   - Slow: answers come late by times that are exponentially distributed.
//   - Refusing: nobody listens any more, and connections that are open are reset, as if
//     the process had been killed.
//
// In the end all are as they were before; who still waits is answered.
package incident
