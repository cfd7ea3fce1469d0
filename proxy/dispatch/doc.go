// Package dispatch finds an endpoint for each client of a load balancer: it puts
// together what a listener's file says (who may come in, which route, how often to
// retry, how long to wait) with what the packages below it know how to do (match,
// balance, health, limit), and is what package core asks on the event loops.
//
// A [Listener] and a [View] are snapshots of one generation of the configuration: they
// are not changed, and a client keeps those that it came under. An [Upstream] and its
// [Endpoint]s live as long as a file names them, so that what is known of them survives
// reloads.
//
// What is called for each client takes no lock that loops share, but for clients that
// wait in a queue, and allocates nothing.
package dispatch
