package sockopt

import (
	"errors"
	"math"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// Options are the options of a proxied TCP socket besides two that are always on. One of
// these is TCP_NODELAY, since a proxy passes on data as it arrives. The other is SO_OOBINLINE,
// without which a relay would not get an urgent byte at its place.
//
// A listener sets them once, before bind(2), and the sockets that it accepts inherit them
// (net/ipv4/tcp_minisocks.c, tcp_create_openreq_child copies the listening socket). Sockets that a
// unix socket accepts inherit nothing, see [Options.First].
type Options struct {
	// KeepAlive is the idle time before the kernel sends the first probe to the peer
	// (TCP_KEEPIDLE), in whole seconds: 0 means DefaultKeepAlive, negative switches it off.
	KeepAlive time.Duration

	// UserTimeout is the time after which the kernel closes the connection with ETIMEDOUT
	// (TCP_USER_TIMEOUT, tcp(7)). It bounds how long sent bytes may stay unacknowledged,
	// probes of an idle connection unanswered, or the peer's window shut. 0 means
	// DefaultUserTimeout, negative leaves it to the kernel, and more than MaxUserTimeout counts
	// as MaxUserTimeout.
	//
	// The kernel counts the time in which the window was shut although the peer answers every probe
	// (net/ipv4/tcp_timer.c, tcp_probe_timer). So UserTimeout must be longer than a live peer ever stops reading, or
	// the option must be taken off meanwhile, as sessions on loops do.
	UserTimeout time.Duration
}

const (
	// DefaultKeepAlive keeps the state of the usual NAT box alive.
	DefaultKeepAlive = 60 * time.Second

	// DefaultUserTimeout is what three probes of an idle connection take. The kernel's own limit
	// is 15 minutes (tcp_retries2 = 15, 924 s) for unacknowledged bytes, and two hours for an idle peer.
	DefaultUserTimeout = 30 * time.Second

	// MaxUserTimeout is the longest that the kernel takes: a C int of milliseconds.
	MaxUserTimeout = math.MaxInt32 * time.Millisecond

	// keepAliveInterval is the longest time between two unanswered probes. It must not
	// exceed UserTimeout: the kernel checks UserTimeout only when a probe is due, so a
	// longer interval would delay the discovery of a dead peer.
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

// SetUserTimeout returns the TCP_USER_TIMEOUT that is set, in whole milliseconds; 0: it is left to the kernel.
func (o Options) SetUserTimeout() time.Duration {
	return time.Duration(milliseconds(max(0, o.withDefaults().UserTimeout))) * time.Millisecond
}

// SetKeepAlive returns the TCP_KEEPIDLE that is set, in whole seconds; 0: there is no keepalive.
func (o Options) SetKeepAlive() time.Duration {
	return time.Duration(seconds(max(0, o.withDefaults().KeepAlive))) * time.Second
}

// seconds rounds up: an option of 0 would mean something else.
func seconds(d time.Duration) int {
	return int((d + time.Second - 1) / time.Second)
}

// milliseconds rounds up as well.
func milliseconds(d time.Duration) int {
	return int((min(d, MaxUserTimeout) + time.Millisecond - 1) / time.Millisecond)
}

// NetKeepAlive is the KeepAlive of a net.ListenConfig or net.Dialer used with [Options.Control]. With it package net
// sets no keepalive of its own in place of the options that Control has set.
const NetKeepAlive = -1

// Control sets the options on a socket that neither listens nor is connected yet. It is a
// net.ListenConfig.Control and a net.Dialer.Control. A unix socket gets SO_OOBINLINE alone,
// and needs it again after accept, as it inherits nothing. For other networks Control does
// nothing. An option that the kernel does not know (ENOPROTOOPT, EOPNOTSUPP) is left out.
func (o Options) Control(network, _ string, conn syscall.RawConn) error {
	set := o.First
	if strings.HasPrefix(network, "tcp") {
		set = o.withDefaults().set
	} else if network != "unix" {
		return nil
	}
	var err error
	if cause := conn.Control(func(fd uintptr) { err = set(int(fd)) }); cause != nil {
		return cause
	}
	return err
}

// First sets the option that is needed before a connect: SO_OOBINLINE, since the kernel drops
// an urgent byte that comes before it. TCP_NODELAY and the options of Last may follow. A unix
// socket drops such a byte when it is read (net/unix/af_unix.c, manage_oob). So there First
// may be called after accept.
func (o Options) First(fd int) error { return set(fd, inline) }

// Last sets the options that matter only to a long connection: keepalive and TCP_USER_TIMEOUT.
// The caller sets the other options of Control.
func (o Options) Last(fd int) error {
	list, n := o.withDefaults().lasting()
	return set(fd, list[:n]...)
}

// Set sets all options, including the two that are always on, on a listening socket, which may
// have had others. Sockets accepted from now on inherit them.
func (o Options) Set(fd int) error {
	o = o.withDefaults()
	var off []option
	if o.KeepAlive < 0 {
		off = append(off, option{sys.SOL_SOCKET, sys.SO_KEEPALIVE, 0})
	}
	if o.UserTimeout < 0 {
		off = append(off, option{sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, 0})
	}
	if err := set(fd, off...); err != nil {
		return err
	}
	return o.set(fd)
}

type option struct{ level, name, value int }

var inline = option{sys.SOL_SOCKET, sys.SO_OOBINLINE, 1}

func (o Options) set(fd int) error {
	err := set(fd, option{sys.IPPROTO_TCP, sys.TCP_NODELAY, 1}, inline)
	if err != nil {
		return err
	}
	list, n := o.lasting()
	return set(fd, list[:n]...)
}

func set(fd int, options ...option) error {
	for _, opt := range options {
		err := sys.SetsockoptInt(fd, opt.level, opt.name, opt.value)
		if err != nil && !unknown(err) {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// lasting returns an array, so that a connection to a target allocates nothing.
func (o Options) lasting() (list [4]option, n int) {
	add := func(level, name, value int) {
		list[n] = option{level, name, value}
		n++
	}
	if o.KeepAlive > 0 {
		add(sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1)
		add(sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, seconds(o.KeepAlive))
		interval := keepAliveInterval
		if o.UserTimeout > 0 {
			interval = min(interval, o.UserTimeout)
		}
		add(sys.IPPROTO_TCP, sys.TCP_KEEPINTVL, seconds(interval))
	}
	if o.UserTimeout > 0 {
		add(sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, milliseconds(o.UserTimeout))
	}
	return list, n
}

// unknown reports whether this kernel, or an emulation of it, lacks an option.
func unknown(err error) bool {
	return errors.Is(err, syscall.ENOPROTOOPT) || errors.Is(err, syscall.EOPNOTSUPP)
}
