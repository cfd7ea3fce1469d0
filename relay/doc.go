// Package relay joins two connections and moves their bytes the cheapest way
// the kernel allows.
//
// [Join] joins two connections until both directions have ended; [Copy] moves one way, in place of
// io.Copy(dst, src); [Wrap] lets code that calls io.Copy use a relay unchanged. They use one relay with the
// defaults. A [Relay] made by [New] has its own timeouts and thresholds, and holds the resources that its
// sessions share: the pool of kernel pipes and the pool of copy buffers.
//
// [Engine] describes how bytes are moved, [Session] how a session ends, [Result] what it has moved, and [Limits]
// the limits of single sessions. A wrapper of a connection lets a relay go beneath it as an [Unwrapper].
//
// A session of Join or [Relay.NewSession] is driven by two goroutines, which wait on Go's own poller, and a Copy by its
// caller's. They take every [net.Conn], work on every system, and are the choice for most programs, where some kilobytes
// of memory for a session do not matter. A [Driver] drives sessions on an event loop (package loop), each a [Driven] of
// less than 300 bytes without a goroutine. It is for programs with thousands of connections, most of them idle or with
// small messages, that accept and connect on the loop as well: it takes descriptors only, of stream sockets, on
// Linux, and nothing else on the loop's goroutine may wait. The load balancer uses it. What such a
// program may put into a session is in package relay/driver. Both drive the same state machine by the same [Config].
//
// Everything exported here is safe for concurrent use unless it says otherwise.
package relay
