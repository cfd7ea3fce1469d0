// Package health detects unhealthy endpoints of an upstream, and keeps load away from them.
//
//   - A [Checker] probes endpoints actively, off the event loops.
//   - An [OutlierDetector] judges the endpoints of an upstream by the results of real
//     connections, and ejects failing endpoints for a while.
//   - A [Breaker] stops connections to an upstream, or to one endpoint, if too many of them
//     fail. After a time it lets a few through for trial. It also limits their number.
//   - A [RetryBudget] bounds the number of retries.
//   - A [Scheduler] runs the timers of all of them, and reports transitions.
//
// The methods that event loops call for real connections allocate nothing and wait for
// nothing: they are a few atomic operations. Only a transition takes a mutex, while a [Target]
// is notified.
//
// Times are nanoseconds of a clock that never goes backwards, the same clock for reports and for
// the Scheduler.
//
// Configurations have no defaults: 0 is taken literally, since the configuration file's schema has
// the defaults. A feature is switched off by a nil pointer, or by the zero that its field
// documents.
package health

// A Target receives the verdicts on an endpoint. Each method is called when its verdict
// changes, on any goroutine, event loops included, so it must neither wait nor call back into
// this package. Calls of one method for one Target never overlap, and the last one holds.
type Target interface {
	// SetHealthy reports the verdict of active checks. Before the first call an endpoint
	// counts as healthy.
	SetHealthy(bool)
	// SetEjected reports whether the endpoint is ejected by an [OutlierDetector].
	SetEjected(bool)
	// SetCircuit reports the state of the endpoint's [Breaker] and, if it is half-open, how many trials are left at this
	// moment. It is called when the last trial has begun, and when one is given back without a result, but not for each
	// trial.
	SetCircuit(s State, trials int)
	// Away reports whether the endpoint gets no clients whatever an [OutlierDetector] says: its checks have found it
	// unhealthy, it is drained, or its weight is 0. Away does not wait.
	Away() bool
}
