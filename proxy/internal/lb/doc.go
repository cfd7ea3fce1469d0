// Package lb chooses the endpoint for a client.
//
// An [Endpoint] serves clients: it counts its sessions, enforces its limit, and has the states that health checks,
// outlier detection, breakers and operators set. It survives reloads. A [Set] is a policy over endpoints, and belongs
// to one generation of a configuration. A [WeightedSplit] divides clients among sets.
//
// The functions that are called for each client (Set.Pick, Endpoint.Release, WeightedSplit.Next) take no lock,
// allocate nothing, and may be called from any number of goroutines.
package lb
