// Package soak keeps a proxy busy with connections that do at random the things that
// connections do: stall, half-close, reset, send urgent bytes, close with bytes unread, send
// nothing. It drives both ends of every connection, so it knows which conditions must hold.
// Afterwards it has the proxy account for every byte, pipe and descriptor.
//
// The behaviour of a connection follows from the seed and the connection's number alone. The
// number has two parts, the round and a count within it. In odd rounds all bytes arrive: a
// reset waits until they have. So the sums of a proxy must be exact to the byte. In even
// rounds some connections are torn down in the middle. How many bytes a kernel drops then is
// unknown, so the proxy's sums are compared with both sides.
package soak
