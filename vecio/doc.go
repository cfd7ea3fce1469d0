// Package vecio gathers pieces and writes them with one system call where others make
// dozens: a response of header, payload and trailer; a hundred queued messages; the two
// halves of a ring.
//
// A [Writer] collects pieces and hands them to the kernel with sendmsg(2), or writev(2) if the descriptor is no
// socket. It copies small pieces, in order, into a pooled buffer; larger ones go by reference. It writes to a
// connection of package net, and waits with the runtime's poller; to a non-blocking descriptor that a loop owns,
// and never waits; and to anything else by one coalesced Write. [Stats] says which.
//
//	w, err := vecio.New(conn, nil)
//	...
//	w.Append(header)               // copied if it is small, else borrowed
//	w.Own(payload, release)         // given to release when it is written
//	w.AppendString("\r\n")
//	err = w.Flush()
//
// # Three rules
//
// The kernel gets addresses and lengths, which the compiler does not check. Every view of memory that this
// package makes with package unsafe keeps three rules, and each rule has its test (memory_linux_test.go):
//
//  1. Live memory. As long as a view exists, the queue of its writer holds a slice (or
//     the string) over the same memory. A view is an entry of an array of struct iovec,
//     filled right before the call and cleared right after it; its base is a pointer
//     that the collector knows. So the memory is alive without runtime.KeepAlive of each
//     piece. It does not move either: the target of a slice in the heap is in the heap,
//     a mapping or static data, and none of these move; only stacks do, and the compiler
//     puts nothing on a stack if its address goes to the heap. A runtime.Pinner is for
//     memory that C keeps beyond the call, and is not needed.
//  2. Length within capacity. A view is as long as a slice with bounds that the compiler has
//     checked, or as a string. No arithmetic on addresses makes one longer: the rest
//     after a short write is made by slicing, which panics rather than reach further.
//  3. No reuse before the kernel is done. sendmsg and writev copy before they return (or
//     have not taken the bytes at all). A buffer of ours and an owned piece go back only
//     when all of their bytes are counted as written, or the writer has failed and no call
//     is running.
//
// The pools keep only our own memory: arrays of iovec and of slice headers, which are cleared first, and copy
// buffers. They never keep a payload alive.
package vecio
