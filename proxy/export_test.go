//go:build linux

package proxy

import (
	"context"
	"net"
	"time"
)

// SetAfter replaces the clock of the drain timeout.
func (s *Server) SetAfter(f func(time.Duration) <-chan time.Time) { s.after = f }

// SetDial replaces how targets are connected to from goroutines.
func (s *Server) SetDial(f func(context.Context) (net.Conn, error)) { s.driver.(*goroutines).dial = f }

// Handle has a client served on goroutines as if it had been accepted.
func (s *Server) Handle(client net.Conn, release func()) error {
	g := s.driver.(*goroutines)
	if err := g.spares.reserve(); err != nil {
		return err
	}
	g.handle(client, release)
	return nil
}

// DownMessage is what is logged of a target that was not reached.
func DownMessage(cause error) string { return downMessage(cause) }
