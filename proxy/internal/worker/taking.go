package worker

import (
	"context"
	"math"
	"net"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay"
)

// A layer is a connection of a protocol such as TLS that a session on a loop can have.
type layer interface {
	relay.Layer
	// Beneath returns the connection over which it is spoken.
	Beneath() net.Conn
}

// TakeSockets takes a client's connection and its endpoint's out of the runtime's hands, for [Offloaded.Rejoin]:
// each a *net.TCPConn or *net.UnixConn, or one within [relay.Prefixed], or beneath a layer such as tlsterm.Conn,
// of which nothing is read or written meanwhile. It returns nil if that cannot be done, for want of a descriptor as a
// rule; then both are as they were.
func TakeSockets(client, endpoint net.Conn) *Rejoin {
	a, b := plainOf(client), plainOf(endpoint)
	if a == nil || b == nil {
		return nil
	}
	fdA, fdB := duplicate(a), duplicate(b)
	if fdA < 0 || fdB < 0 {
		for _, fd := range []int{fdA, fdB} {
			if fd >= 0 {
				closeSocket(fd)
			}
		}
		return nil
	}
	_, _ = a.Close(), b.Close() // which end their part in the runtime's poller
	return &Rejoin{A: socketOf(client, fdA), B: socketOf(endpoint, fdB)}
}

// A plain is a connection of package net.
type plain interface {
	net.Conn
	syscall.Conn
}

// plainOf returns the innermost connection, nil if that is none of package net.
func plainOf(c net.Conn) plain {
	for {
		switch inner := c.(type) {
		case *net.TCPConn:
			return inner
		case *net.UnixConn:
			return inner
		case layer:
			c = inner.Beneath()
		case interface{ NetConn() net.Conn }:
			c = inner.NetConn()
		default:
			return nil
		}
	}
}

// duplicate returns a descriptor of the caller's own, non-blocking as those of package net are; negative: there is
// none.
func duplicate(c syscall.Conn) (fd int) {
	fd = -1
	raw, err := c.SyscallConn()
	if err != nil {
		return fd
	}
	_ = raw.Control(func(own uintptr) {
		if d, err := sys.Dup(int(own)); err == nil {
			fd = d
		}
	})
	return fd
}

// socketOf describes a descriptor of a connection, whose other bytes it takes.
func socketOf(c net.Conn, fd int) relay.Socket {
	s := relay.Socket{FD: fd}
	if l, ok := c.(layer); ok {
		s.Layer, c = l, l.Beneath()
	}
	if u, ok := c.(relay.Unwrapper); ok {
		_, s.Ahead, _ = u.RelayReader(context.Background(), math.MaxInt) // of package relay, which neither waits nor fails
	}
	_, s.TCP = plainOf(c).(*net.TCPConn)
	s.NoDelay = s.TCP // set by package net
	return s
}
