package socket

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// NetKeepAlive is what net.ListenConfig and net.Dialer take as KeepAlive beside
// [Options.Control]: they set nothing of their own, as Control did.
const NetKeepAlive = -1

// Control sets the options on a socket that neither listens nor is connected
// yet. It is a net.ListenConfig.Control and a net.Dialer.Control. A unix socket has
// SO_OOBINLINE alone, and needs it again when it is accepted: it inherits nothing.
// Other networks are left alone. An option that the kernel does not know
// (ENOPROTOOPT, EOPNOTSUPP) is left out.
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

// First sets what has to be set before a connect: SO_OOBINLINE, since the kernel drops
// an urgent byte that comes before it. TCP_NODELAY and what Last sets may follow. A unix
// socket drops it when it is read (net/unix/af_unix.c, manage_oob), so there First is in
// time when it was accepted.
func (o Options) First(fd int) error { return set(fd, inline) }

// Last sets what matters only to a connection that lasts: keepalive and
// TCP_USER_TIMEOUT. What else Control sets is then somebody else's business.
func (o Options) Last(fd int) error {
	list, n := o.withDefaults().lasting()
	return set(fd, list[:n]...)
}

// Set sets all of them, and what is always on, on a socket that listens, which may have had
// others: those that it accepts from now on inherit them.
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

// lasting returns an array so that a connection to a target makes no garbage of it.
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

// unknown reports whether this kernel, or what stands in for it, lacks an option.
func unknown(err error) bool {
	return errors.Is(err, syscall.ENOPROTOOPT) || errors.Is(err, syscall.EOPNOTSUPP)
}
