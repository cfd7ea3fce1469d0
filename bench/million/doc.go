// Package million drives what an idle session costs Penstock in user memory with as
// many sessions as there is memory for: relay's sessions in slabs, the table and the
// timer wheel of a loop, and an arena. All of that is Penstock's own code. Stand-ins
// are the sockets, of which no process may have two million: sessions share a few
// pairs of unix sockets, so that they read and write by real system calls, and are
// told of what is there by calls instead of by epoll.
package million
