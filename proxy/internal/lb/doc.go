// Package lb chooses the endpoint for a client.
//
// An [Endpoint] serves clients: it counts its sessions, holds to its limit, and has the states
// that health checks, outlier detection, breakers and operators set. It survives reloads. A
// [Set] is a policy over endpoints; it belongs to one generation of a configuration. A
// [WeightedSplit] shares clients among sets.
//
// The functions that are called for each client (Set.Pick, Endpoint.Release, WeightedSplit.Next) wait
// for no lock and allocate nothing, and may be called from any number of goroutines.
package lb
