package sockets

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// A Survivor is a peer that gets a reset from the other side. The results of its calls distinguish a reset
// from an end of file.
type Survivor struct {
	Reads, Writes bool
	Read, Write   error // the errors that have ended its calls; nil: it makes no such calls
}

// Live reads, and writes pieces, until its calls fail. An end of file ends only the reading.
func (s *Survivor) Live(c net.Conn, piece []byte) {
	var calls sync.WaitGroup
	if s.Reads {
		calls.Go(func() {
			for buf := make([]byte, 64<<10); s.Read == nil; {
				_, s.Read = c.Read(buf)
			}
		})
	}
	if s.Writes {
		calls.Go(func() {
			for s.Write == nil {
				_, s.Write = c.Write(piece)
			}
		})
	}
	calls.Wait()
}

// WasReset reports whether the connection was reset without an end of file before. The kernel gives a socket
// one error, to whichever call comes first (sk_err): ECONNRESET, but EPIPE if a FIN has been received
// (net/ipv4/tcp_input.c, tcp_reset). If a write gets the error, a later read returns as at an end of file, so
// the result of the read alone is not enough.
func (s *Survivor) WasReset() bool {
	return errors.Is(s.Read, syscall.ECONNRESET) || errors.Is(s.Write, syscall.ECONNRESET)
}

// String returns the errors that have ended its calls.
func (s *Survivor) String() string { return fmt.Sprintf("read: %v, write: %v", s.Read, s.Write) }
