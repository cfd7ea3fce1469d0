// Package incident measures how clients fare in an incident. A load balancer passes requests on to a number of
// endpoints. At one moment a third of the endpoints turn silent, slow or refusing, while the load goes on. It is
// for Linux only.
//
// # Overview
//
// There are three processes: all endpoints, `penstock run` with a file, and the load. Each endpoint listens at a
// separate port, and answers HTTP requests. Several files are compared. In one of them nothing protects the
// clients, in the others something does.
//
// The load is open: requests begin at a fixed rate, evenly spaced, however slow the answers are. Each request has
// its own connection, and is given up after a timeout. Its time counts from the moment at which it should begin,
// until it is answered or has failed. So a client without an answer has waited for the timeout, and the mean
// includes the waits of all clients, not only of the clients with an answer.
//
// # The failures of an endpoint
//
//   - Silent: the endpoint accepts connections, but never sends anything, whatever the client does.
//     Requests in progress get no answer either.
//   - Slow: answers come late, with exponentially distributed delays.
//   - Refusing: the endpoint does not listen any more, and resets open connections, as if its process
//     had been killed.
//
// In the end all endpoints work again, and answer the clients that still wait.
package incident
