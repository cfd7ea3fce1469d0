package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
)

// told is a server that replies with the PROXY header it receives, and then echoes.
func told(t *testing.T) string {
	return sockets.Server(t, func(c net.Conn) {
		var policy proxyproto.Policy
		var b []byte
		one := make([]byte, 1)
		for {
			if need, err := policy.Length(b); err != nil {
				fmt.Fprintf(c, "%v\n", err)
				return
			} else if len(b) > 0 && need <= len(b) {
				break
			}
			if _, err := c.Read(one); err != nil {
				return
			}
			b = append(b, one[0])
		}
		var info proxyproto.Info
		if _, err := policy.Parse(b, &info); err != nil {
			fmt.Fprintf(c, "%v\n", err)
			return
		}
		name, _ := proxyproto.Find(info.TLVs, proxyproto.TypeAuthority)
		fmt.Fprintf(c, "v%d from %v to %v name %s\n", info.Version, info.Source, info.Destination, name)
		sockets.Echo(c)
	})
}

// TestProxyHeaders: a client's header is accepted from the allowed sources, removed, and passed
// on. For other clients the addresses of the connection count.
func TestProxyHeaders(t *testing.T) {
	t.Parallel()

	for _, version := range []int{1, 2} {
		up := told(t)
		r := start(t, fmt.Sprintf(`
listeners:
  - {name: from, bind: "127.0.0.1:0", accept_proxy: {from: ["127.0.0.0/8"]}, upstream: u, deny: ["192.0.2.66"]}
  - {name: other, bind: "127.0.0.1:0", accept_proxy: {from: ["10.0.0.0/8"]}, upstream: u}
  - {name: strict, bind: "127.0.0.1:0", accept_proxy: {timeout: 200ms}, upstream: u}
upstreams: [{name: u, endpoints: [%q], send_proxy: %d, health_check: off}]`, up, version))
		c := client(t, r.At("from"))
		fmt.Fprint(c, "PROXY TCP4 192.0.2.1 192.0.2.2 1111 443\r\nhello")
		if got := line(t, c); !strings.HasPrefix(got, fmt.Sprintf("v%d from 192.0.2.1:1111 to 192.0.2.2:443", version)) {
			t.Error(got)
		}
		rest := make([]byte, 5)
		if _, err := io.ReadFull(c, rest); err != nil || string(rest) != "hello" {
			t.Errorf("%q, %v", rest, err)
		}
		echoes(t, c, "after the header")
		c = client(t, r.At("other"))
		if got, want := line(t, c), fmt.Sprintf("v%d from %v to %v", version, c.LocalAddr(), c.RemoteAddr()); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
		c = client(t, r.At("from"))
		fmt.Fprint(c, "PROXY TCP4 192.0.2.66 192.0.2.2 1111 443\r\n")
		gone(t, c)
		r.Until("the client is refused by its true address", func() bool { return r.Refused("from", "address") == 1 })
		c = client(t, r.At("from"))
		fmt.Fprint(c, "GET / HTTP/1.1\r\n\r\n")
		gone(t, c)
		gone(t, client(t, r.At("strict")))
		r.Until("both clients are counted", func() bool {
			return r.Refused("from", "proxy_header") == 1 && r.Refused("strict", "proxy_header") == 1
		})
	}
}

// TestCheckTellsItsAddresses: a check's PROXY header of version 1 has the addresses of its own
// connection, since some servers refuse UNKNOWN (the specification, 2.1); that of version 2 is
// LOCAL.
func TestCheckTellsItsAddresses(t *testing.T) {
	t.Parallel()
	for version, want := range map[int]func(net.Conn) string{
		1: func(c net.Conn) string {
			from, to := c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr)
			return fmt.Sprintf("PROXY TCP4 %v %v %d %d\r\n", from.IP, to.IP, from.Port, to.Port)
		},
		2: func(net.Conn) string { return "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00" },
	} {
		got, wanted := make(chan string, 100), make(chan string, 100)
		up := sockets.Server(t, func(c net.Conn) {
			b, _ := io.ReadAll(c)
			got <- string(b)
			wanted <- want(c)
		})
		start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], send_proxy: %d}]`, up, version))
		if said, want := <-got, <-wanted; said != want {
			t.Errorf("version %d: the check sends %q, want %q", version, said, want)
		}
	}
}

// TestDiscoveryByFile: endpoints are added and removed as the file changes.
func TestDiscoveryByFile(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, discover: {file: {path: eps.yaml}}, on_removed: reset}]`, "eps.yaml", fmt.Sprintf("[%q]", a))
	c := client(t, r.At("l"))
	if got := line(t, c); got != "a" {
		t.Fatal(got)
	}
	r.Write("eps.yaml", fmt.Sprintf("[%q]", b))
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	r.Until("clients get the new endpoint", func() bool { return whose(t, r.At("l")) == "b" })
}

// TestConnectOnData: an endpoint is connected to only after the client has sent a byte.
func TestConnectOnData(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, connect: on_data, timeouts: {preread: 300ms}}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], health_check: off}]`, a))
	mute := client(t, r.At("l"))
	c := client(t, r.At("l"))
	r.Until("both clients are accepted", func() bool { return r.Status().Listeners[0].Connections.Active == 2 })
	if e := r.Endpoint("u", "a"); e.Total != 0 {
		t.Errorf("%+v", e)
	}
	fmt.Fprint(c, "x")
	if got := line(t, c); got != "a" {
		t.Error(got)
	}
	gone(t, mute)
	r.Until("the refusal is counted", func() bool { return r.Refused("l", "preread") == 1 })
}

// TestBandwidth: sessions share their listener's bandwidth and are still spliced. Another
// listener is not affected.
func TestBandwidth(t *testing.T) {
	t.Parallel()

	pipequota.Share(t)
	const size, rate = 3 << 20, 4 << 20
	up := sockets.Server(t, func(c net.Conn) {
		buf := make([]byte, 64<<10)
		for sent := 0; sent < size; sent += len(buf) {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: slow, bind: "127.0.0.1:0", upstream: u, limits: {bandwidth: 4MiB}}
  - {name: fast, bind: "127.0.0.1:0", upstream: u}
  - {name: down, bind: "127.0.0.1:0", upstream: u, limits: {bandwidth: {down: 4MiB, burst: 1MiB}}}
  - {name: up, bind: "127.0.0.1:0", upstream: u, limits: {bandwidth: {up: 64KiB}, bandwidth_per_connection: {up: 64KiB}}}
upstreams: [{name: u, endpoints: [%q]}]`, up))
	took := func(listener string) time.Duration {
		began := time.Now()
		if n, err := io.Copy(io.Discard, client(t, r.At(listener))); n != size || err != nil {
			t.Errorf("%s: %d bytes, %v", listener, n, err)
		}
		return time.Since(began)
	}
	// Two sessions share it. The bytes of a tenth of a second may pass at once.
	other := make(chan time.Duration)
	go func() { other <- took("slow") }()
	if d, least := max(took("slow"), <-other), (2*size-rate/10)*time.Second/rate; d < least {
		t.Errorf("the transfer took %v, less than %v", d, least)
	}
	// Each direction has its own limit; down has a burst.
	if d, least := took("down"), (size-1<<20)*time.Second/rate; d < least {
		t.Errorf("down, the transfer took %v, less than %v", d, least)
	}
	for _, listener := range []string{"fast", "up"} {
		if d := took(listener); d > 10*time.Second { // at the limit for up it would be 48 s
			t.Errorf("%s, the transfer took %v", listener, d)
		}
	}
	if s := r.Summary(); s.Bytes.EndpointToClient.Spliced < size {
		t.Errorf("%d bytes spliced of %d", s.Bytes.EndpointToClient.Spliced, 5*size)
	}
}

// TestHeaderIsNoDestination: a transparent listener connects a client to the destination that the
// kernel reports, not to the one in its PROXY header.
func TestHeaderIsNoDestination(t *testing.T) {
	t.Parallel()

	reached := make(chan struct{}, 10)
	secret := sockets.Server(t, func(net.Conn) { reached <- struct{}{} })
	_, port, _ := net.SplitHostPort(secret)
	r := start(t, `listeners: [{name: l, bind: "127.0.0.1:0", transparent: true, accept_proxy: {}}]`)
	for _, head := range []string{
		"PROXY TCP4 192.0.2.1 127.0.0.1 5 " + port + "\r\n",
		"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:127.0.0.1 5 " + port + "\r\n",
	} {
		c := client(t, r.At("l"))
		_, _ = io.WriteString(c, head+"hello")
		if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: %v, want a reset", head, err)
		}
	}
	select {
	case <-reached:
		t.Error("a client was connected to its header's destination")
	default:
	}
}
