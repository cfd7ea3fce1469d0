// Package loop is a reactor: one goroutine that waits for many descriptors with edge-triggered
// epoll(7), and calls their handlers one after the other.
//
// A [Loop] has descriptors, timers and a mailbox. Everything but [Loop.Post], [Loop.Stop] and [Loop.Stats]
// belongs to the loop's goroutine: handlers, timers and posted functions may call it, or anyone before
// [Loop.Run]. No two handlers of a loop ever run at the same time, so state that belongs to one loop needs no
// lock. A handler must not block, and should do a bounded amount of work before it returns; for the rest it
// calls [Loop.Again].
//
// # Edges
//
// Readiness is reported once, when it changes, and not again while it lasts: a handler reads until EAGAIN, or
// until a read has returned less than was asked for, and then waits for [Readable]; it writes likewise. A read
// also returns less at [Urgent] data of TCP, and at descriptors that come over a unix socket. No call
// is needed to change the set of events: a descriptor is always registered for all of them.
//
// # Where descriptors come from
//
// [Loop.Listen] accepts connections, [Loop.Connect] makes them, [Take] takes over connections of
// packages net and os, and [Give] gives them back; [Loop.Add] takes any descriptor that epoll can
// wait for. A [Group] is one loop for each CPU.
//
// # Handlers as coroutines
//
// [Serve] runs a handler for each connection as a coroutine of a loop. It is written like a handler
// on a goroutine: where it would wait, the loop serves others. With [Server.Callbacks] it is called
// without a coroutine, each time that bytes have come.
//
// # When not to use it
//
// A goroutine for each connection is simpler, and as fast while connections are few or each
// carries much. Handlers that must block (files, databases, DNS, other people's libraries) do
// not belong on a loop at all. A loop pays where there are thousands of connections, most of
// them idle, or very many small messages.
package loop
