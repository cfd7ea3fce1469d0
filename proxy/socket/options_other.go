//go:build !linux

package socket

import "syscall"

// NetKeepAlive is what net.ListenConfig and net.Dialer take as KeepAlive beside
// [Options.Control]: package net's default, as Control sets nothing here.
const NetKeepAlive = 0

// Control sets nothing on this system: package net switches on TCP_NODELAY and
// keepalive by itself.
func (o Options) Control(string, string, syscall.RawConn) error { return nil }
