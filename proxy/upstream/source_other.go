//go:build !linux

package upstream

import "syscall"

// bindLate does nothing: bind(2) chooses the port.
func bindLate(syscall.RawConn) error { return nil }
