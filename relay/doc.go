// Package relay joins two connections and moves their bytes the cheapest way
// the kernel allows.
//
// [Join] joins two connections until both directions have ended; [Copy] moves one way, in place of
// io.Copy(dst, src); [Wrap] lets code that calls io.Copy use a relay unchanged. They use one relay with the
// defaults. A [Relay] of one's own, by [New], has its own timeouts and thresholds, and holds what its
// sessions share: the pool of kernel pipes and the pool of copy buffers.
//
// # Two drivers
//
// The sessions of Join and [Relay.NewSession] are driven by two goroutines each, which
// wait on Go's own poller; Copy is driven by its caller's. They take every [net.Conn],
// work on every system, and are the choice for most programs, where some kilobytes of
// memory for a session do not matter.
//
// A [Driver] drives sessions on an event loop (package loop), each a [Driven] of less than 300
// bytes without a goroutine. It is for programs with thousands of connections, most of them
// idle or with small messages, that accept and connect on the loop as well: it takes
// descriptors only, of stream sockets, on Linux, and nothing that is done beside it on the
// loop's goroutine may wait. The load balancer uses it.
//
// Both drive the same state machine by the same [Config], so the following is true of both
// unless it says otherwise.
//
// # Which bytes go how
//
// *net.TCPConn, stream *net.UnixConn and *os.File are moved beneath Go: small
// reads are copied through a warm buffer, bulk is spliced (splice(2)) through a
// leased pipe, a regular file is sent by sendfile(2) or copy_file_range(2).
// Every other type is moved through its own Read and Write, with the buffers of io.Copy, because one Read or Write may
// be a message (datagram sockets of package net get 64 KiB, so that all is read that IP can carry); and the result says
// so ([FallbackWrapped]); other systems than Linux move everything so
// ([FallbackUnsupported]). A type that embeds one of the three counts as another
// type: relay never goes beneath a wrapper that did not ask for it. A wrapper
// asks by implementing [Unwrapper].
//
// # What is held
//
// A direction that waits for its source holds neither pipe nor buffer, unless its source is
// one of the "other types", whose Read needs a buffer to wait with. Bytes that a slow
// destination left behind stay in the one pipe or buffer that they came in, and stop the
// source. (A Driver moves the rest in its loop's shared buffer to a slot of package arena that
// is just large enough.)
//
// # Ends
//
// An end of file is passed on as a half-close, in each direction and order. To a wrapper without
// CloseWrite it cannot be: the other direction goes on until its own end, or until no byte has moved for
// HalfCloseTimeout, or five seconds if that is 0, and the wrapper gets its end then. [Config.CloseOnEOF] ends
// sessions at the first end; if that costs bytes the result is [ReasonTruncated]. An end of file is the only
// thing that is passed on as a clean end, with one exception: an idle time ends a session of plain
// sockets with an end of file of both sides if nothing is held or unread, all is acknowledged, and the
// first side was not the last to send.
// A reset, a failure, other timeouts and a canceled context
// reset the sides whose other side had not ended, after the bytes that had arrived, as far as
// the destination takes them at once. After a reset or failure of one side the other one gets the bytes that had arrived
// before it is reset, however slowly it takes them, unless it acknowledges none for five seconds. The TCP connection beneath a TLS one is reset likewise.
// (A *tls.Conn answers io.EOF to its reader also when the connection beneath has ended between
// two records, without close_notify: a program that wants that to be a reset has to wrap it.)
// A wrapper knows no reset if no TCP connection is found beneath it, by NetConn() net.Conn, SetLinger or
// [Unwrapper]: it is closed, and its peer sees an end of file, as with [io.Copy].
// A unix socket knows no reset: its peer sees ECONNRESET only if it had sent bytes that were
// not read, and an end of file otherwise.
//
// A cut stops the calls of a wrapped connection by its deadlines. If they have not returned after a
// second, the connection is closed.
//
// A reset is met by the next read or write. With goroutines it stays unnoticed until a timeout
// while neither goes on (one direction is blocked by a slow destination and the other has
// ended, or has nothing to send); a Driver gets it as an event of the loop, and ends the
// session at once.
//
// # Limits
//
// A session may have [Limits] of its own in place of the timeouts of [Config], and limits of
// bandwidth: one of its own, and a [Bucket] that it shares with any number of others, on other
// loops and goroutines too; each of both directions together, or of one. A direction that has to wait
// has not read yet: it holds neither pipe nor buffer, its bytes stay with the source, which
// notices by its window, and it goes on splicing when its turn comes. Bytes that were read are
// passed on at once.
//
// # Urgent data
//
// Urgent data, of TCP or of a unix socket (which has it since Linux 5.15), never stalls a
// direction and never costs the bytes around it. Without SO_OOBINLINE on its receiving socket the kernel drops the urgent
// byte itself, as with every program that does not ask for it (tcp(7), RFC 6093). With SO_OOBINLINE, which penstock proxy and penstock run set, a
// [Driver] passes a byte of TCP on to TCP as urgent data, at its place; goroutines, and sessions with a layer or a rewrite, pass it on as a byte of the stream.
//
// Everything exported here is safe for concurrent use unless it says otherwise.
package relay
