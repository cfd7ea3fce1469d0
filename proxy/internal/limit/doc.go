// Package limit admits clients: so many connections at once and so many a second, of all
// clients and of each source, and from allowed addresses.
//
// Everything here is asked on event loops for each client that is accepted: nothing waits, and
// nothing allocates once the tables have the size that the load needs. Times are nanoseconds
// of one monotonic clock, the same for all calls of a value; everything is safe for concurrent
// use by several loops.
package limit
