package verdict

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/sys"
)

// A network is a client, a proxy and an endpoint, each a host of its own, with a link from the proxy to either other.
type network struct {
	client, proxy, endpoint *process.Group
}

// The addresses: near ones are the proxy's.
const (
	clientAt, nearClient     = "10.201.1.1", "10.201.1.2"
	endpointAt, nearEndpoint = "10.201.2.1", "10.201.2.2"
)

// newNetwork makes it. Without privileges the error wraps syscall.EPERM.
func newNetwork() (n *network, err error) {
	n = new(network)
	for _, g := range []**process.Group{&n.client, &n.proxy, &n.endpoint} {
		if *g, err = process.NewIsolatedGroup(); err != nil {
			n.close()
			return nil, err
		}
	}
	err = n.link(n.client, "far", clientAt, "client", nearClient)
	if err == nil {
		err = n.link(n.endpoint, "far", endpointAt, "endpoint", nearEndpoint)
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *network) close() {
	for _, g := range []*process.Group{n.client, n.proxy, n.endpoint} {
		if g != nil {
			g.Close()
		}
	}
}

// link makes a link between a host and the proxy. Packets are of the size of a network's, so that queues and losses
// are, too.
func (n *network) link(host *process.Group, far, farAt, near, nearAt string) error {
	thread := 0
	if err := n.proxy.Do(func() { thread = sys.Gettid() }); err != nil {
		return err
	}
	if err := on(host, "ip link add "+far+" type veth peer name "+near+" netns "+strconv.Itoa(thread)); err != nil {
		return err
	}
	if err := on(host, "ip addr add "+farAt+"/24 dev "+far, "ip link set "+far+" up gso_max_segs 1"); err != nil {
		return err
	}
	if err := on(n.proxy, "ip addr add "+nearAt+"/24 dev "+near, "ip link set "+near+" up gso_max_segs 1"); err != nil {
		return err
	}
	return nil
}

// reno has all hosts use Reno in place of this machine's congestion control. (Any other one may be refused in a
// namespace: net/ipv4/tcp_cong.c, TCP_CONG_NON_RESTRICTED.)
func (n *network) reno() (err error) {
	for _, g := range []*process.Group{n.client, n.proxy, n.endpoint} {
		write := func() { err = os.WriteFile("/proc/sys/net/ipv4/tcp_congestion_control", []byte("reno"), 0o644) }
		if stop := g.Do(write); stop != nil || err != nil {
			return errors.Join(stop, err)
		}
	}
	return nil
}

// on runs commands on a host, without a shell.
func on(g *process.Group, commands ...string) (err error) {
	for _, c := range commands {
		words := strings.Fields(c)
		cmd := exec.Command(words[0], words[1:]...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if stop := g.Do(func() { err = cmd.Run() }); stop != nil {
			return stop
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, bytes.TrimSpace(said.Bytes()))
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
