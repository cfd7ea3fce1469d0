//go:build !linux

package core

import "net/netip"

// Without loops there is no descriptor to be asked.

func peerOf(int) netip.AddrPort { return netip.AddrPort{} }

func localOf(int) netip.AddrPort { return netip.AddrPort{} }

func originalOf(int) netip.AddrPort { return netip.AddrPort{} }
