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

// DownMessage is what is logged of a target that was not reached.
func DownMessage(cause error) string { return downMessage(cause) }
