// Package balance chooses the endpoint that a client is sent to.
//
// An [Endpoint] is somebody who serves: it counts its sessions, holds to its limit,
// and knows what health checks, outlier detection, breakers and operators think of
// it. It survives reloads. A [Set] is a policy over endpoints; it belongs to one
// generation of a configuration. A [Split] shares clients among sets.
//
// What is called for each client (Set.Pick, Endpoint.Release, Split.Next) waits for no
// lock and allocates nothing, and may be called from any number of goroutines.
package balance
