//go:build !linux

package core

import "net/netip"

// A Listening is a listening socket that a group of loops accepts from, of which there
// is none here.
type Listening struct{ Local netip.AddrPort }

// Handed is a client that has left its loop, of which there is none here.
type Handed struct{}
