package router

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// An unreachedReason is why a connection to an endpoint could not be made, for the endpoint's part.
type unreachedReason uint8

const (
	connectionRefused unreachedReason = iota
	connectionReset
	connectionTimedOut
	noRouteTo
	noAddressOf
	handshakeFailed
	otherwiseUnreached
	unreachedReasons
)

func (r unreachedReason) String() string {
	return [...]string{"refused", "reset", "timed out", "no route", "name", "TLS handshake", "other"}[r]
}

type unreachedCounts [unreachedReasons]atomic.Int64

// unreachedBy returns the reason that an error is.
func unreachedBy(err error) unreachedReason {
	switch {
	case errors.As(err, new(*tlsterm.Error)):
		return handshakeFailed
	case errors.As(err, new(*net.DNSError)):
		return noAddressOf
	}
	switch errnoOf(err) {
	case syscall.ECONNREFUSED:
		return connectionRefused
	case syscall.ECONNRESET:
		return connectionReset
	case syscall.ETIMEDOUT:
		return connectionTimedOut
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return noRouteTo
	}
	return otherwiseUnreached
}

// Unreached returns how many connections to endpoints could not be made, for the endpoints' part.
func (u *Upstream) Unreached() int64 { return total(u.unreached[:]) }

// UnreachedReasons returns Unreached by reason.
func (u *Upstream) UnreachedReasons() map[string]int64 {
	return byName(u.unreached[:], func(i int) string { return unreachedReason(i).String() })
}
