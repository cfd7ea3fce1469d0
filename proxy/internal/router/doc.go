// Package router finds an endpoint for each client of a load balancer. It applies the rules of a listener (admission,
// routes, retries, timeouts) by the packages below it (match, lb, health, limit). Package worker asks it on the event
// loops.
//
// A [Listener] and an [UpstreamSnapshot] are snapshots of one generation of the configuration:
// they are not changed, and a client keeps the snapshots under which it came. An [Upstream] and its
// [Endpoint]s live as long as a file names them, so that their state survives reloads.
//
// # A client's way
//
// A [Search] is a client's way to an endpoint. Its stages are, with the files that have them:
//
//	admitting    a place under the listener's limit                     search.go
//	   │
//	routing      the route, and so the upstream; or TLS: Handover       search.go, route.go
//	   │
//	choosing     pick: an endpoint, if its breakers let the client pass pick.go
//	   │ │ │     (lb.Set passes over an ejected one)
//	   │ │ └──── queueing, waiting: each one is full                    queue.go
//	   │ └────── pausing: each one was tried                            search.go
//	   │
//	connecting   one address after the other, given up for a better one attempt.go
//	   │
//	 joined      a binding reports the outcome when the session ends    binding.go
//
// If no endpoint is usable, or each one has failed (unavailable), the search goes on with the fallback, or it responds, or
// it tries any endpoint as a last resort. Then the client is held until an endpoint can be tried again (lastresort.go), and
// refused in the end (refusal.go). A reload that sends the client elsewhere begins the search again; a reload that no
// longer lets it in ends it (generation.go).
//
// The functions that are called for each client allocate nothing, and take no lock that loops share unless the client waits
// in a queue.
package router
