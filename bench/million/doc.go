// Package million drives the data structures of an idle session in user memory, with as many
// sessions as there is memory for. These are relay's sessions in slabs, the table and the
// timer wheel of a loop, and an arena. All of that is Penstock's own code. Only the sockets
// are stand-ins, because no process may have two million. Sessions share a few pairs of unix
// sockets, so that they read and write by real system calls. Their events come by calls
// instead of by epoll.
package million
