//go:build linux

package verdict_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/software"
)

// A network is a client, a proxy and an endpoint, each a host of its own, and a router between the proxy and either
// other. Faults of a network are made at a router: the queue of a host's own device shows in its own TCP.
type network struct {
	client, proxy, endpoint      *netns.Host
	clientRouter, endpointRouter *router

	nearClient, endpointAt netip.Addr // of the proxy, and of the endpoint
	devices                [2]string  // of the proxy, to the routers
}

// A router has a link to a host, and one to the proxy.
type router struct {
	*netns.Host
	t            testing.TB
	outer, inner string // devices
}

// newNetwork makes it, until the end of the test. The test is skipped where networks, or their faults, cannot be made.
func newNetwork(t testing.TB) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces and their faults, which takes root")
	}
	for _, tool := range []string{"tc", "nft"} {
		software.Need(t, tool, map[string]string{"tc": "iproute2", "nft": "nftables"}[tool])
	}
	n := &network{client: netns.New(t), proxy: netns.New(t), endpoint: netns.New(t)}
	join := func(host *netns.Host, i int) (r *router, outer, inner netns.Link) {
		r = &router{Host: netns.New(t), t: t}
		outer, inner = host.Join(r.Host), n.proxy.Join(r.Host)
		r.outer, r.inner, n.devices[i] = outer.Device, inner.Device, inner.Device
		// Packets are of the size of a network's, so that queues and losses are, too.
		for _, l := range []struct {
			host   *netns.Host
			device string
		}{{host, outer.Device}, {r.Host, outer.Device}, {n.proxy, inner.Device}, {r.Host, inner.Device}} {
			l.host.IP("link set %s gso_max_segs 1", l.device)
		}
		host.IP("route add default via %v", outer.Far)
		n.proxy.IP("route add %v via %v", outer.Near, inner.Far)
		write(r.Host, t, "net/ipv4/ip_forward", "1")
		return r, outer, inner
	}
	var toClient, toEndpoint netns.Link
	n.clientRouter, _, toClient = join(n.client, 0)
	n.endpointRouter, toEndpoint, _ = join(n.endpoint, 1)
	n.nearClient, n.endpointAt = toClient.Near, toEndpoint.Near
	return n
}

func write(h *netns.Host, t testing.TB, name, text string) {
	t.Helper()
	var err error
	h.Run(func() { err = os.WriteFile("/proc/sys/"+name, []byte(text), 0o644) })
	if err != nil {
		t.Fatal(err)
	}
}

// nft runs nft(8) at the router.
func (r *router) nft(format string, args ...any) {
	r.t.Helper()
	var said []byte
	var err error
	command := fmt.Sprintf(format, args...)
	if r.Run(func() { said, err = exec.Command("nft", command).CombinedOutput() }); err != nil {
		r.t.Fatalf("nft %s: %v: %s", command, err, said)
	}
}

// lose drops packets that leave by a device, and returns how to end that.
func (r *router) lose(device string, percent float64) (undo func()) {
	r.nft("add table inet verdict")
	r.nft("add chain inet verdict out { type filter hook forward priority 0 ; }")
	r.nft("add rule inet verdict out oifname %s meta l4proto tcp numgen random mod 10000 < %d drop", device, int(percent*100))
	return func() { r.nft("delete table inet verdict") }
}

// reno has all hosts use Reno in place of this machine's congestion control. (Any other one may be refused in a
// namespace: net/ipv4/tcp_cong.c, TCP_CONG_NON_RESTRICTED.)
func (n *network) reno(t testing.TB) {
	for _, h := range []*netns.Host{n.client, n.proxy, n.endpoint} {
		write(h, t, "net/ipv4/tcp_congestion_control", "reno")
	}
}

// listen listens on the endpoint, with a receive buffer of that size unless it is 0.
func (n *network) listen(receive int) (l net.Listener, err error) {
	cfg := net.ListenConfig{Control: withBuffer(receive)}
	cfg.SetMultipathTCP(false)
	n.endpoint.Run(func() { l, err = cfg.Listen(context.Background(), "tcp4", n.endpointAt.String()+":0") })
	return l, err
}

func dial(h *netns.Host, to string, receive int) (c net.Conn, err error) {
	d := net.Dialer{Control: withBuffer(receive), Timeout: condition.Patience}
	h.Run(func() { c, err = d.Dial("tcp4", to) })
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

// A path makes the way over a router a long one, where the kernel has no netem: a TUN device there gets every packet
// between its two links, and gives it back after a delay. Packets keep their order.
type path struct {
	device *os.File // owned
	delay  time.Duration
	jitter time.Duration // up to so much more
	queue  chan delayed
	done   sync.WaitGroup
}

// A delayed packet.
type delayed struct {
	due    time.Time
	packet *[]byte
}

const (
	pathDevice = "path"
	// pathQueue is how many packets may be under way in both directions: 25 MB, which is 1 Gbit/s at 200 ms.
	pathQueue = 1 << 14
)

// packets are buffers for those that are under way.
var packets = sync.Pool{New: func() any {
	b := make([]byte, 0, 2048)
	return &b
}}

// lengthen has each packet over the router take so much longer, from link to link. Without privileges the error wraps
// syscall.EPERM. The path must be closed.
func lengthen(router *router, delay, jitter time.Duration) (p *path, err error) {
	var fd int
	if router.Run(func() { fd, err = sys.OpenTUN(pathDevice) }); err != nil {
		return nil, fmt.Errorf("lengthen a path: a TUN device: %w", err)
	}
	p = &path{device: os.NewFile(uintptr(fd), pathDevice), delay: delay, jitter: jitter, queue: make(chan delayed, pathQueue)}
	p.done.Go(p.take)
	p.done.Go(p.give)
	router.IP("link set %s txqueuelen 5000 up", pathDevice)
	router.IP("route add default dev %s table 100", pathDevice)
	// A packet of the device itself matches neither rule: it goes to the link that it was for.
	router.IP("rule add iif %s lookup 100", router.outer)
	router.IP("rule add iif %s lookup 100", router.inner)
	return p, nil
}

// take takes packets from the device, until that is closed.
func (p *path) take() {
	defer close(p.queue)
	var last time.Time
	for {
		b := packets.Get().(*[]byte)
		n, err := p.device.Read((*b)[:cap(*b)])
		if err != nil {
			return
		}
		*b = (*b)[:n]
		due := time.Now().Add(p.delay)
		if p.jitter > 0 {
			due = due.Add(rand.N(p.jitter))
		}
		if due.Before(last) {
			due = last
		}
		last = due
		select {
		case p.queue <- delayed{due, b}:
		default: // a loss, as on any path
			packets.Put(b)
		}
	}
}

// give gives them back when they are due.
func (p *path) give() {
	for d := range p.queue {
		time.Sleep(time.Until(d.due))
		_, _ = p.device.Write(*d.packet) // an error is a loss
		packets.Put(d.packet)
	}
}

// close ends the path, and with it the device. Packets that are under way are lost. The rules stay for the router's life.
func (p *path) close() {
	_ = p.device.Close()
	p.done.Wait()
}
