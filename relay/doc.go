// Package relay joins two connections and moves their bytes the cheapest way
// the kernel allows.
//
// [Join] joins two connections until both directions have ended; [Copy] moves one way, in place of io.Copy(dst,
// src); [Wrap] lets code that calls io.Copy use a relay unchanged. These three functions share the default relay.
// A [Relay] made by [New] has its own timeouts and thresholds, and holds the resources that its sessions share:
// the pool of kernel pipes and the pool of copy buffers. To end, close your listener, wait for the sessions, and
// let [Relay.Close] reset those that are left. [Relay.Shutdown] waits too, but refuses clients whose target is
// still being dialed: to serve these, wait for your goroutines instead.
//
// See [Engine] for how bytes move, [Session] for how a session ends, [Result] for what it has moved, and [Limits]
// for the limits of single sessions. A wrapper that is an [Unwrapper] lets a relay move bytes beneath it.
//
// Two goroutines drive a session of Join or [Relay.NewSession], and wait on Go's own poller; a Copy runs on its
// caller's goroutine. Both take every [net.Conn] except a *loop.Conn, on every system. Use goroutines unless 13 KB
// a session is too much. A [Driver] drives sessions on an event loop (package loop): each is a [Driven] of at most
// 280 bytes, without a goroutine. It is for programs with thousands of connections, most of them idle or with
// small messages, that accept and connect on the loop as well. It takes only descriptors of stream sockets, on
// Linux, and nothing else on the loop's goroutine may wait. The load balancer uses it. Package relay/driver has
// the interfaces of what such a program may add to a session. Goroutines and Drivers run the same state machine
// with the same [Config].
//
// Everything exported here is safe for concurrent use unless it says otherwise.
package relay
