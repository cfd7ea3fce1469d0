package verdict

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/sys"
)

// A network is a client, a proxy and an endpoint, each a host of its own, and a router between the proxy and either
// other. Faults of a network are made at a router: the queue of a host's own device shows in its own TCP.
type network struct {
	client, clientRouter, proxy, endpointRouter, endpoint *process.Group
}

// The addresses: near ones are the proxy's.
const (
	clientAt, nearClient     = "10.201.1.1", "10.201.2.1"
	endpointAt, nearEndpoint = "10.201.4.1", "10.201.3.1"

	nearClientRouter, nearEndpointRouter = "10.201.2.2", "10.201.3.2"
)

// deviceTo is the device of a host to a router's inner device.
func deviceTo(routerAt string) string { return ownDevice("inner", routerAt) }

func ownDevice(device, routerAt string) string {
	return "to-" + device + strings.ReplaceAll(routerAt[len("10.201"):], ".", "-")
}

// newNetwork makes it. Without privileges the error wraps syscall.EPERM.
func newNetwork() (n *network, err error) {
	n = new(network)
	for _, g := range n.hosts() {
		if *g, err = process.NewIsolatedGroup(); err != nil {
			n.close()
			return nil, err
		}
	}
	err = errors.Join(
		link(n.client, clientAt, n.clientRouter, "outer", "10.201.1.2"),
		link(n.proxy, nearClient, n.clientRouter, "inner", nearClientRouter),
		link(n.proxy, nearEndpoint, n.endpointRouter, "inner", nearEndpointRouter),
		link(n.endpoint, endpointAt, n.endpointRouter, "outer", "10.201.4.2"),
		n.client.Run("ip route add default via 10.201.1.2"),
		n.endpoint.Run("ip route add default via 10.201.4.2"),
		n.proxy.Run("ip route add 10.201.1.0/24 via 10.201.2.2", "ip route add 10.201.4.0/24 via 10.201.3.2"),
		n.write("net/ipv4/ip_forward", "1", n.clientRouter, n.endpointRouter),
	)
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *network) hosts() []**process.Group {
	return []**process.Group{&n.client, &n.clientRouter, &n.proxy, &n.endpointRouter, &n.endpoint}
}

func (n *network) close() {
	for _, g := range n.hosts() {
		if *g != nil {
			(*g).Close()
		}
	}
}

// link makes a link between a host and a router. Packets are of the size of a network's, so that queues and losses
// are, too.
func link(host *process.Group, hostAt string, router *process.Group, device, routerAt string) error {
	thread := 0
	if err := router.Do(func() { thread = sys.Gettid() }); err != nil {
		return err
	}
	own := ownDevice(device, routerAt)
	if err := host.Run("ip link add " + own + " type veth peer name " + device + " netns " + strconv.Itoa(thread)); err != nil {
		return err
	}
	if err := host.Run("ip addr add "+hostAt+"/24 dev "+own, "ip link set "+own+" up gso_max_segs 1"); err != nil {
		return err
	}
	return router.Run("ip addr add "+routerAt+"/24 dev "+device, "ip link set "+device+" up gso_max_segs 1")
}

// reno has all hosts use Reno in place of this machine's congestion control. (Any other one may be refused in a
// namespace: net/ipv4/tcp_cong.c, TCP_CONG_NON_RESTRICTED.)
func (n *network) reno() error {
	return n.write("net/ipv4/tcp_congestion_control", "reno", n.client, n.proxy, n.endpoint)
}

// write writes a file of /proc/sys on some hosts.
func (n *network) write(name, text string, hosts ...*process.Group) (err error) {
	for _, g := range hosts {
		if stop := g.Do(func() { err = os.WriteFile("/proc/sys/"+name, []byte(text), 0o644) }); stop != nil || err != nil {
			return errors.Join(stop, err)
		}
	}
	return nil
}

// listen listens on the endpoint, with a receive buffer of that size unless it is 0.
func (n *network) listen(receive int) (l net.Listener, err error) {
	cfg := net.ListenConfig{Control: withBuffer(receive)}
	cfg.SetMultipathTCP(false)
	if stop := n.endpoint.Do(func() { l, err = cfg.Listen(noContext, "tcp", endpointAt+":0") }); stop != nil {
		return nil, stop
	}
	return l, err
}

// dial connects from the client to the proxy.
func (n *network) dial(to netip.AddrPort, receive int) (c net.Conn, err error) {
	d := net.Dialer{Control: withBuffer(receive), Timeout: patience}
	if stop := n.client.Do(func() { c, err = d.Dial("tcp", to.String()) }); stop != nil {
		return nil, stop
	}
	return c, err
}

func withBuffer(receive int) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		if receive == 0 {
			return nil
		}
		if stop := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, receive) }); stop != nil {
			return stop
		}
		return err
	}
}
