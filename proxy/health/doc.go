// Package health finds out which endpoints of an upstream are well, and keeps load
// away from what is not.
//
//   - A [Checker] asks endpoints actively, off the event loops.
//   - An [Outlier] judges the endpoints of an upstream by what real connections to
//     them came to, and ejects those that fail for a while.
//   - A [Breaker] stops connections to an upstream, or to one endpoint, of which too
//     many fail, lets a few through for trial after a time, and bounds how many there
//     are.
//   - A [Budget] bounds how many connections may be retried.
//   - A [Keeper] does for all of them what has to be done at a time of its own, and
//     tells of transitions.
//
// What real connections call, on event loops, allocates nothing and waits for
// nothing: it is a few atomic operations. Only a transition takes a mutex, for as
// long as it takes to tell a [Target].
//
// Times are nanoseconds of one clock that never goes backwards, the same for whoever
// reports and for the Keeper.
//
// Configurations are meant as they stand: 0 is no default, since the defaults are
// those of the configuration file, and what is switched off is a nil pointer or the
// zero that its field tells of.
package health

// A Target is told the verdicts on an endpoint. Each method is called when its verdict
// changes, from whatever goroutine finds that out, event loops included, so it must
// neither wait nor call back into this package. Calls of one method for one Target
// never overlap, and the last one is what holds.
type Target interface {
	// SetHealthy tells what active checks say. Before the first call an endpoint
	// counts as healthy.
	SetHealthy(bool)
	// SetEjected tells whether the endpoint is ejected by an [Outlier].
	SetEjected(bool)
	// SetCircuit tells the state of the endpoint's [Breaker], and if that is half-open
	// how many trials are left at this moment. It is told when the last of them has
	// begun, and when one is left again because nothing was learned of it, but not of
	// each that begins.
	SetCircuit(s State, trials int)
}
