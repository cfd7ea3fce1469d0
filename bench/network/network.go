// Package network has the hosts of a measurement. Either all use one loopback device, or the client, the proxy and
// the server each have a network namespace, joined by veth(4).
package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/lossy"
)

// A Kind is how hosts are joined.
type Kind string

// The kinds.
const (
	// Loopback means that there is one host.
	Loopback Kind = "loopback"
	// Veth means three hosts that are joined by veth. The proxy's host forwards packets, for clients without a
	// proxy.
	Veth Kind = "veth"
	// Loss is Veth with a link between client and proxy that loses 1 % of the packets each way, but no resets.
	Loss Kind = "loss"
)

// lossRate is the rate of Loss. The packets have the size of a network's packets, so that one loss is the loss of
// one packet.
var lossRate = lossy.Rate{Lose: 100, SpareResets: true}

const (
	oneSegment      = "gso_max_segs 1"
	proxyDevice     = "to-client"
	clientDevice    = "to-proxy"
	proxyToServer   = "to-server"
	clientAt        = "10.202.1.2"
	nearClient      = "10.202.1.1"
	nearServer      = "10.202.2.1"
	serverAt        = "10.202.2.2"
	loopbackAddress = "127.0.0.1"
)

// Hosts are the groups in which children are started: three different groups, or three times the same group. The
// caller calls Close, which ends all of them.
type Hosts struct {
	Client, Proxy, Server *process.Group
	ProxyAt, ServerAt     string // addresses, without a port
	links                 []*lossy.Link
}

// One returns one host for all. The Hosts own g.
func One(g *process.Group) *Hosts {
	return &Hosts{Client: g, Proxy: g, Server: g, ProxyAt: loopbackAddress, ServerAt: loopbackAddress}
}

// New returns three hosts that are joined as Veth or Loss says. It needs root and ip(8). Without the privileges,
// the error wraps syscall.EPERM.
func New(k Kind) (*Hosts, error) {
	h := &Hosts{ProxyAt: nearClient, ServerAt: serverAt}
	for _, g := range []**process.Group{&h.Client, &h.Proxy, &h.Server} {
		var err error
		if *g, err = process.NewIsolatedGroup(); err != nil {
			h.Close()
			return nil, err
		}
	}
	err := h.join(k)
	if err == nil && k == Loss {
		err = errors.Join(h.lose(h.Client, clientDevice), h.lose(h.Proxy, proxyDevice))
	}
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("network: %w", err)
	}
	return h, nil
}

// Close ends the hosts, and everything that runs there.
func (h *Hosts) Close() {
	for _, l := range h.links {
		_ = l.Close()
	}
	for _, g := range []*process.Group{h.Client, h.Proxy, h.Server} {
		if g != nil {
			g.Close()
		}
	}
}

func (h *Hosts) join(k Kind) error {
	more := ""
	if k == Loss {
		more = " " + oneSegment
	}
	err := errors.Join(
		link(h.Proxy, proxyDevice, nearClient, h.Client, clientDevice, clientAt, more),
		link(h.Proxy, proxyToServer, nearServer, h.Server, clientDevice, serverAt, more),
	)
	if err != nil {
		return err
	}
	err = errors.Join(
		h.Client.Run("ip route add default via "+nearClient),
		h.Server.Run("ip route add default via "+nearServer),
	)
	stopped := h.Proxy.Do(func() { err = errors.Join(err, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)) })
	return errors.Join(err, stopped)
}

// link joins two hosts by a pair of devices. more has further words of ip link set for both devices.
func link(a *process.Group, aDevice, aAt string, b *process.Group, bDevice, bAt, more string) error {
	thread := 0
	if err := b.Do(func() { thread = sys.Gettid() }); err != nil {
		return err
	}
	return errors.Join(
		a.Run("ip link add "+aDevice+" type veth peer name "+bDevice+" netns "+strconv.Itoa(thread),
			"ip addr add "+aAt+"/24 dev "+aDevice, "ip link set "+aDevice+" up"+more),
		b.Run("ip addr add "+bAt+"/24 dev "+bDevice, "ip link set "+bDevice+" up"+more),
	)
}

// lose makes a device of a host lose arriving packets.
func (h *Hosts) lose(g *process.Group, device string) (err error) {
	stopped := g.Do(func() {
		var d *net.Interface
		if d, err = net.InterfaceByName(device); err != nil {
			return
		}
		var l *lossy.Link
		if l, err = lossy.Attach(d.Index, lossRate); err == nil {
			h.links = append(h.links, l)
		}
	})
	return errors.Join(stopped, err)
}
