// Package soak keeps a proxy busy with connections that do at random what
// connections do: stall, half-close, reset, send urgent bytes, close with bytes
// unread, say nothing. It drives both ends of every connection, so it knows what
// must hold, and afterwards has the proxy account for every byte, pipe and
// descriptor.
//
// What a connection does follows from the seed and the connection's number
// alone. The number has two parts, the round and a count within it. In odd rounds
// all bytes arrive: a reset waits until they have. So the sums of a proxy must be
// exact to the byte. In even rounds some connections are torn down in the middle,
// and what a kernel threw away by that nobody can know; there the proxy's sums are
// held against both sides.
package soak
