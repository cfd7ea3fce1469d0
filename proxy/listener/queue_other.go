//go:build !linux

package listener

import "syscall"

// backlog is how many connections to look for when the listener closes.
func backlog() int { return 4096 }

// queued has no portable way to look: trying to accept, for as long as patience
// allows, is what says that the queue is empty.
func (l *Listener) queued() bool { return true }

// closeDescriptor is for a listener that was detached, of which there is none.
func closeDescriptor(int) error { return nil }

// resize leaves the accept queue as it is: the length is a hint.
func (l *Listener) resize() error { return nil }

// onlyIPv6 has no portable way to look.
func onlyIPv6(syscall.RawConn) bool { return false }
