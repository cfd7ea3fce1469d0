package socket

import (
	"math"
	"time"
)

// Options are the options of a proxied TCP socket beside the ones that are always
// on: TCP_NODELAY, since a proxy passes on what it got when it got it, and
// SO_OOBINLINE, since an urgent byte is a byte of the stream to a relay.
//
// A listener has them set once, before bind(2), and the sockets that it accepts
// inherit them (net/ipv4/tcp_minisocks.c, tcp_create_openreq_child copies the
// listening socket). Those of a unix socket inherit nothing, see [Options.First].
type Options struct {
	// KeepAlive is how long a connection is quiet before the kernel asks its peer
	// for a sign of life (TCP_KEEPIDLE), in whole seconds: 0 means
	// DefaultKeepAlive, negative switches it off.
	KeepAlive time.Duration

	// UserTimeout is how long sent bytes may stay unacknowledged, probes of an
	// idle connection unanswered, or the peer's window shut, before the kernel
	// gives the connection up with ETIMEDOUT (TCP_USER_TIMEOUT, tcp(7)): 0 means
	// DefaultUserTimeout, negative leaves it to the kernel, and more than
	// MaxUserTimeout is that.
	//
	// It must be longer than a live peer ever stops reading: the kernel counts the
	// time in which the window was shut although the peer answers every probe
	// (net/ipv4/tcp_timer.c, tcp_probe_timer).
	UserTimeout time.Duration
}

const (
	// DefaultKeepAlive keeps the state of the usual NAT box alive.
	DefaultKeepAlive = 60 * time.Second

	// DefaultUserTimeout is about what Linux allows unacknowledged bytes by
	// default (tcp_retries2 = 15, 924 s), so that no peer that only pauses is cut
	// earlier than without a proxy; but an idle one that died is, two hours
	// earlier.
	DefaultUserTimeout = 15 * time.Minute

	// MaxUserTimeout is the longest that the kernel takes: a C int of milliseconds.
	MaxUserTimeout = math.MaxInt32 * time.Millisecond

	// keepAliveInterval is the time between two unanswered probes, at most. It is no
	// longer than UserTimeout, or a peer that died would be noticed that much later: the
	// kernel looks at UserTimeout when it is time for a probe.
	keepAliveInterval = 10 * time.Second
)

func (o Options) withDefaults() Options {
	if o.KeepAlive == 0 {
		o.KeepAlive = DefaultKeepAlive
	}
	if o.UserTimeout == 0 {
		o.UserTimeout = DefaultUserTimeout
	}
	return o
}

// seconds rounds up: an option of 0 would mean something else.
func seconds(d time.Duration) int {
	return int((d + time.Second - 1) / time.Second)
}

// milliseconds rounds up as well.
func milliseconds(d time.Duration) int {
	return int((min(d, MaxUserTimeout) + time.Millisecond - 1) / time.Millisecond)
}
