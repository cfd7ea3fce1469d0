// Package upstream connects to the targets of a proxy.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/socket"
)

// Config sets up a [Group]. A nil *Config means the defaults.
type Config struct {
	// ConnectTimeout bounds the attempt to reach one target, from resolving its
	// name to trying the last of its addresses, each of which gets an equal share
	// of what is left; 0 means as long as the kernel tries.
	ConnectTimeout time.Duration

	// Options are the options of the sockets that connect.
	Options socket.Options

	// Source is the local address to connect from, if valid; targets that are unix
	// sockets do not mind. The port is chosen when the target is known
	// (IP_BIND_ADDRESS_NO_PORT, ip(7)).
	Source netip.Addr

	// Own reports whether an address is one on which this process itself listens to
	// serve the group: it is not dialed. Nil means none.
	Own func(Address) bool

	// Local reports whether an IP address is one of this machine's; nil means that
	// any may be.
	Local func(netip.Addr) bool

	// OnDown is called when a target that answered, or was never tried, cannot be
	// reached: once, until OnUp says that it answers again. Neither is called more
	// than about once a second for a target. Both are called by the goroutines that
	// dial, several at a time, and may be nil.
	OnDown func(target string, cause error)
	OnUp   func(target string)
}

// A Group is a set of targets that serve the same. It is safe for concurrent use.
type Group struct {
	cfg                Config
	targets            []*target
	turn               atomic.Uint32
	dialer, unixDialer net.Dialer
	ports              portRange
	lookup             func(ctx context.Context, network, host string) ([]netip.Addr, error)
	now                func() time.Time
}

// New returns a Group of targets, which are taken in turn in the order given. No
// target is contacted. The error says which target cannot be one, and what to
// write instead, and wraps [socket.ErrAddress]; or why Source cannot be one.
func New(targets []socket.Address, cfg *Config) (*Group, error) {
	if len(targets) == 0 {
		return nil, fmt.Errorf("%w: there is no target", socket.ErrAddress)
	}
	g := &Group{lookup: net.DefaultResolver.LookupNetIP, now: time.Now, ports: ephemeralPorts()}
	if cfg != nil {
		g.cfg = *cfg
	}
	g.cfg.Source = g.cfg.Source.Unmap()
	if err := checkSource(g.cfg.Source); err != nil {
		return nil, err
	}
	g.setDialers()
	for _, addr := range targets {
		t, err := newTarget(addr)
		if err == nil {
			err = g.checkFamily(t)
		}
		if err != nil {
			return nil, err
		}
		g.targets = append(g.targets, t)
	}
	return g, nil
}

// Targets returns the targets as they were given.
func (g *Group) Targets() []string {
	names := make([]string, len(g.targets))
	for i, t := range g.targets {
		names[i] = t.addr.String()
	}
	return names
}

// Dial connects to the target whose turn it is or, when that cannot be reached,
// to the next, until each was tried once. The caller owns the connection.
//
// The error names every target that was tried and why it failed, in one line, and
// wraps the causes: syscall.ECONNREFUSED, context.DeadlineExceeded for
// [Config.ConnectTimeout], [ErrPortsExhausted], ... When the cause is this
// process (out of descriptors or memory) or the end of ctx, no further target is
// tried.
func (g *Group) Dial(ctx context.Context) (net.Conn, error) {
	var s Search
	for s.Begin(g); ; {
		switch step := s.Next(monotonic()); step.Do {
		case Connect:
			conn, err := g.connect(ctx, &step)
			if err == nil {
				s.Reached()
				return conn, nil
			}
			s.Failed(err, monotonic(), ctx.Err() != nil)
		case Resolve:
			ips, err := g.Resolve(ctx, step.Host, step.Timeout)
			s.Resolved(ips, err, ctx.Err() != nil)
		case GiveUp:
			return nil, s.Err()
		}
	}
}

// Resolve returns the addresses of a host, within a time, or as long as it takes if
// that is 0.
func (g *Group) Resolve(ctx context.Context, host string, timeout time.Duration) ([]netip.Addr, error) {
	ctx, cancel := within(ctx, timeout)
	defer cancel()
	return g.lookup(ctx, "ip", host)
}

// connect takes a step of a search.
func (g *Group) connect(ctx context.Context, step *Step) (net.Conn, error) {
	ctx, cancel := within(ctx, step.Timeout)
	defer cancel()
	dialer := &g.dialer
	if step.Address.Path != "" {
		dialer = &g.unixDialer
	}
	conn, err := dialer.DialContext(ctx, step.Address.network(), step.Address.String())
	if err != nil {
		return nil, err
	}
	if step.MaybeSelf && toItself(conn) {
		conn.Close()
		return nil, ErrSelfConnect
	}
	return conn, nil
}

// within bounds ctx by a time, unless that is 0.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

var start = time.Now()

// monotonic is a clock that never goes backwards, in nanoseconds.
func monotonic() int64 { return int64(time.Since(start)) }

// toItself reports whether a connection has the same socket at both ends: what
// TCP's simultaneous open makes of a connect to a port of the ephemeral range on
// which nobody listens, when the kernel chooses that same port as the source.
func toItself(conn net.Conn) bool {
	local, ok1 := conn.LocalAddr().(*net.TCPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok1 && ok2 && local.Port == remote.Port && local.IP.Equal(remote.IP)
}

// maybeSelf reports whether that can happen with an address.
func (g *Group) maybeSelf(a Address) bool {
	return a.Path == "" && g.ports.has(a.AddrPort.Port()) && (g.cfg.Local == nil || g.cfg.Local(a.AddrPort.Addr()))
}

// up and down note what a target did, for [Config.OnUp] and [Config.OnDown].
func (g *Group) up(t *target) {
	if t.state.turn(false, g.now) && g.cfg.OnUp != nil {
		g.cfg.OnUp(t.addr.String())
	}
}

func (g *Group) down(t *target, cause error) {
	if t.state.turn(true, g.now) && g.cfg.OnDown != nil {
		g.cfg.OnDown(t.addr.String(), cause)
	}
}

// ownFault reports whether an attempt failed for want of something in this
// process or on this machine, which another target would need as well.
func ownFault(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM},
		func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

// causes are several errors in one line.
type causes []error

func line(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return causes(errs)
}

func (c causes) Unwrap() []error { return c }

func (c causes) Error() string {
	var texts []string
	for _, err := range c {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}
