// Package router finds an endpoint for each client of a load balancer: it applies the rules of
// a listener (admission, routes, retries, timeouts) by the packages below it (match, lb,
// health, limit), and is asked by package worker on the event loops.
//
// A [Listener] and an [UpstreamSnapshot] are snapshots of one generation of the configuration:
// they are not changed, and a client keeps those that it came under. An [Upstream] and its
// [Endpoint]s live as long as a file names them, so that their state survives reloads.
//
// The functions that are called for each client take no lock that loops share, but for clients
// that wait in a queue, and allocate nothing.
package router
