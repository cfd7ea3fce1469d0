package server_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
)

// TestFallback: clients without a usable endpoint go to another upstream, or get a response and
// an orderly end. The status says of the outage that a response serves them.
func TestFallback(t *testing.T) {
	t.Parallel()

	a, dead := named(t, "a"), sockets.Refusing(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, endpoints: [%q], fallback: {upstream: w}, retry: {attempts: 0}}
  - {name: v, endpoints: [%q], fallback: {respond: sorry.txt}, retry: {attempts: 0}}
  - {name: w, endpoints: [%q]}`, dead, dead, a), "sorry.txt", "sorry\n")
	servedBy(t, r.At("l"), "a")
	c := client(t, r.At("m"))
	if got, err := io.ReadAll(c); err != nil || string(got) != "sorry\n" {
		t.Errorf("%q, %v", got, err)
	}
	r.Until("the outage is seen", func() bool { return r.Status().Upstreams[1].Outage != nil })
	if o := r.Status().Upstreams[1].Outage; !o.Served {
		t.Errorf("%+v", o)
	}
}

// greeter starts a server that greets each client, and sends what the client has sent to a channel.
func greeter(t *testing.T) (address string, got <-chan string) {
	texts := make(chan string, 10)
	return sockets.Server(t, func(c net.Conn) {
		fmt.Fprintln(c, "hello")
		text, _ := io.ReadAll(c)
		texts <- string(text)
	}), texts
}

// waits waits until n clients of the first upstream wait.
func (r *rig) waits(n int64) {
	r.T.Helper()
	r.Until(fmt.Sprintf("%d clients wait", n), func() bool { return r.Status().Upstreams[0].Pending == n })
}

// TestHungUpClientsGiveWay: a client of a unix socket sends bytes and closes while it is queued.
// It keeps its place as long as no other client needs it, and its bytes are delivered. A client
// that wants an answer takes the place.
func TestHungUpClientsGiveWay(t *testing.T) {
	t.Parallel()

	address, got := greeter(t)
	path := filepath.Join(t.TempDir(), "s")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "unix:%s", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [{address: %q, connections: 1}], queue: {size: 2, timeout: 1m}}]`, path, address))
	connect := func() net.Conn {
		c := dialUnix(t, path)
		t.Cleanup(func() { c.Close() })
		return c
	}
	first := connect()
	line(t, first)
	for i := range 2 {
		c := connect()
		r.waits(int64(i + 1))
		must(t, second(fmt.Fprintf(c, "left by %d", i)))
		c.Close()
	}
	second := connect()
	r.Until("one client gives way", func() bool { return r.Status().Upstreams[0].Reasons["full"] == 1 })
	r.waits(2)
	first.Close()
	<-got // the first client has sent nothing
	if text := <-got; text != "left by 1" {
		t.Errorf("the endpoint got %q", text)
	}
	line(t, second)
	fmt.Fprint(second, "and more")
	second.Close()
	if text := <-got; text != "and more" {
		t.Errorf("the endpoint got %q", text)
	}
}

// TestClientsThatHaveEndedGiveWay: a TCP client waits in the queue, and ends its side without having sent a byte. It loses
// its place when the queue is full, because it has probably gone. Until then it keeps the place: its server may speak first.
// A client that has sent a byte keeps its place in any case.
func TestClientsThatHaveEndedGiveWay(t *testing.T) {
	t.Parallel()

	for name, header := range map[string]string{"without a header": "", "with a PROXY header": "PROXY UNKNOWN\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, got := greeter(t)
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", %s upstream: u, limits: {connections: 4}}]
upstreams: [{name: u, health_check: off, endpoints: [{address: %q, connections: 1}], queue: {size: 2, timeout: 1m}}]`,
				map[bool]string{true: "accept_proxy: {},"}[header != ""], address))
			connect := func(text string) net.Conn {
				c := client(t, r.At("l"))
				must(t, second(io.WriteString(c, header+text)))
				return c
			}
			end := func(c net.Conn) { must(t, c.(*net.TCPConn).CloseWrite()) }

			first := connect("")
			line(t, first)
			ended := connect("")
			end(ended)
			r.waits(1)
			end(first)
			line(t, ended) // nobody needed its place
			<-got
			<-got

			first = connect("")
			line(t, first)
			asks := connect("asks")
			end(asks)
			r.waits(1)
			var hold []net.Conn // until its header and its end are both there, the next client is not accepted
			for len(hold) < 2 && header != "" {
				hold = append(hold, client(t, r.At("l")))
			}
			gone := connect("")
			end(gone)
			for _, c := range hold {
				c.Close()
			}
			r.waits(2)
			left, refused, served := make(chan struct{}), make(chan struct{}, 1), make(chan struct{}, 1)
			go func() {
				defer close(left)
				_, _ = gone.Read(make([]byte, 1))
			}()
			refused <- struct{}{}
			r.Until("the client that has gone makes room", func() bool {
				select {
				case <-left:
					return true
				case <-refused: // a client that came before the loop had noticed the end
				default:
					return false
				}
				go func() {
					c, err := net.Dial("tcp", r.At("l"))
					if err == nil {
						defer c.Close()
						_, _ = io.WriteString(c, header)
						_, err = c.Read(make([]byte, 1))
					}
					if err != nil {
						refused <- struct{}{}
						return
					}
					served <- struct{}{}
				}()
				return false
			})
			end(first)
			line(t, asks)
			if text := <-got + <-got; text != "asks" {
				t.Errorf("the endpoint got %q", text)
			}
			<-served
		})
	}
}

// TestListenerLimits: clients beyond the limit wait to be accepted; those beyond the limit of one
// source are refused. A reload changes source_prefix, also for the clients that there are, which are still counted when the
// limit or the listener has been away for a while.
func TestListenerLimits(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	text := func(limits string) string {
		return fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, limits: {connections: 2}}
  - {name: m, bind: "127.0.0.1:0", upstream: u, limits: {%s}}
upstreams: [{name: u, endpoints: [%q]}]`, limits, a)
	}
	r := start(t, text("per_source: 2"))
	there := many(t, 2, r.At("l"))
	late := client(t, r.At("l"))
	_ = late.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, errTimeout) {
		t.Errorf("%v, want it to wait", err)
	}
	_ = late.SetReadDeadline(time.Now().Add(condition.Patience))
	there[0].Close()
	line(t, late)
	many(t, 2, r.At("m"))
	refused(t, r.At("m"))
	r.Until("the refusal is counted", func() bool { return r.Refused("m", "per_source") == 1 })
	r.Reload(text("per_source: 3, source_prefix: [8, 64]"))
	line(t, from(t, 1, r.At("m")))
	refused(t, r.At("m")) // whose network has three clients, and its address two
	for _, away := range []string{text("connections: 100"), strings.Replace(text("connections: 100"), "name: m", "name: away", 1)} {
		r.Reload(away) // the limit, or the listener, is away for a while: its clients are still counted
		r.Reload(text("per_source: 3, source_prefix: [8, 64]"))
		refused(t, r.At("m"))
	}
}

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
		receives(t, c, "hello")
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
		for _, half := range []string{"PROXY TCP4 127", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00"} {
			c = client(t, r.At("from"))
			fmt.Fprint(c, half)
			must(t, c.CloseWrite())
			gone(t, c)
		}
		r.Until("these clients are counted", func() bool {
			return r.Refused("from", "proxy_header") == 3 && r.Refused("strict", "proxy_header") == 1
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
		startUpstream(t, `endpoints: [%q], send_proxy: %d`, up, version)
		if said, want := <-got, <-wanted; said != want {
			t.Errorf("version %d: the check sends %q, want %q", version, said, want)
		}
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
		isReset(t, c)
	}
	select {
	case <-reached:
		t.Error("a client was connected to its header's destination")
	default:
	}
}

// greeted returns a server that reads a line or n bytes, and answers with its name.
func greeted(t *testing.T, name string) string {
	return sockets.Server(t, func(c net.Conn) {
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err == nil {
			fmt.Fprintf(c, "%s %q\n", name, b)
			sockets.Echo(c)
		}
	})
}

const manyRoutes = `
listeners:
  - name: many
    bind: "127.0.0.1:0"
    preread_silence: %s
    timeouts: {preread: %s}
    routes:
      - {match: {protocol: [ssh]}, upstream: ssh}
      - {match: {bytes: [{offset: 1, text: RFB}]}, upstream: rfb}
      - {match: {path: ["/admin/*", /admin]}, upstream: deny}
      - {match: {host: ["*.deny.test"]}, upstream: deny}
      - {match: {host: [a.test]}, upstream: a}
      - {match: {protocol: [http1]}, upstream: web}
      - {match: {user: [app]}, upstream: app}
      - {match: {protocol: [postgres]}, upstream: pg}
      - {match: {protocol: [redis]}, upstream: redis}
      - {match: {protocol: [silence]}, upstream: smtp}
    upstream: rest
upstreams:
`

// startMany has a load balancer serve manyRoutes, with two times of its listener.
func startMany(t *testing.T, silence, preread string) *rig {
	text := fmt.Sprintf(manyRoutes, silence, preread)
	for _, name := range []string{"ssh", "deny", "a", "web", "app", "pg", "redis", "rfb", "rest"} {
		text += fmt.Sprintf("  - {name: %s, endpoints: [%q]}\n", name, greeted(t, name))
	}
	return start(t, text+fmt.Sprintf("  - {name: smtp, endpoints: [%q]}\n", named(t, "smtp")))
}

// firstBytes are what clients send first, by the upstream that they get to; "" are refused.
var firstBytes = []struct{ sent, to string }{
	{"SSH-2.0-x\r\n", "ssh"},
	{"GET /admin/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "deny"},
	{"GET /%61dmin HTTP/1.1\r\nHost: a.test\r\n\r\n", "deny"},
	{"GET / HTTP/1.1\r\nHost: A.TEST.:80\r\n\r\n", "a"},
	{"GET / HTTP/1.1\r\nX: y\r\nHost: X.Deny.Test\r\n\r\n", "deny"},
	{"GET http://x.deny.test/ HTTP/1.1\r\nHost: x.deny.test\r\n\r\n", "deny"},
	{"GET / HTTP/1.1\r\nHost: b.test\r\n\r\nGET /admin/x HTTP/1.1\r\nHost: x.deny.test\r\n\r\n", "web"},
	{"\x00\x00\x00\x12\x00\x03\x00\x00user\x00app\x00\x00", "app"},
	{"\x00\x00\x00\x12\x00\x03\x00\x00user\x00apq\x00\x00", "pg"},
	{message(3<<16, "user\x00apq\x00options\x00-c database=x\x00\x00"), "pg"}, // no route asks for a database
	{message(3<<16, "user\x00App\x00\x00"), "E"},
	{message(3<<16, "user\x00apq\x00USER\x00app\x00\x00"), "E"},
	{"*1\r\n$4\r\nPING\r\n", "redis"},
	{"\x01RFB", "rfb"},
	{"EHLO x\r\n", "rest"},
	{"GET / HTTP/1.1\r\nHost: a.test\r\nHost: x.deny.test\r\n\r\n", ""},
	{"GET /x/../admin/ HTTP/1.1\r\nHost: a.test\r\n\r\n", ""},
	{"GET /x%2f..%2fadmin/ HTTP/1.1\r\nHost: a.test\r\n\r\n", ""},
	{"G1 /admin/x HTTP/1.1\r\n", "deny"},
	{strings.Repeat("A", 40) + " /admin/x HTTP/1.1\r\n", "deny"},
	{"\x0bGET /admin/x HTTP/1.1\r\n", ""},
	{"GET\x0c/admin/x HTTP/1.1\r\n", ""},
	{"\x02RFC", ""},
	{"GET /\r\n", ""},
	{"\r\nGET /admin/x HTTP/1.1\r\n\r\n", ""},
	{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
	{"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 8200) + "\r\nHost: x.deny.test\r\n\r\n", ""},
	{"\x00\x00\x27\x15\x00\x03\x00\x00user\x00app\x00", ""}, // a StartupMessage longer than servers take
	{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "E"},               // SSLRequest: an ErrorResponse in place of the reset alone
}

// TestFirstBytes: a client gets to the first route that its first bytes fit, however they are split. If they leave a route
// in doubt that comes before, it is refused, and counted.
func TestFirstBytes(t *testing.T) {
	t.Parallel()

	r := startMany(t, "19s", "20s") // none of these clients waits for either
	refused := int64(0)
	for _, c := range firstBytes {
		for _, piece := range []int{len(c.sent), 1} {
			conn := client(t, r.At("many"))
			var err error
			for at := 0; at < len(c.sent) && err == nil; at += piece {
				_, err = io.WriteString(conn, c.sent[at:min(at+piece, len(c.sent))])
			}
			if c.to == "" || c.to == "E" {
				if err == nil {
					var b []byte
					b, err = io.ReadAll(conn)
					if len(b) > 0 != (c.to == "E") || string(b[:min(len(b), 1)]) != c.to {
						t.Errorf("%.40q in pieces of %d is answered %q", c.sent, piece, b)
					}
				}
				if c.to == "E" && err == nil {
					refused++
					continue // a connection that was read to its end is closed without a reset
				}
				if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					t.Errorf("%.40q in pieces of %d: %v, want a reset", c.sent, piece, err)
				}
				refused++
				continue
			}
			if got, want := line(t, conn), fmt.Sprintf("%s %q", c.to, c.sent[:1]); got != want {
				t.Errorf("%.40q in pieces of %d gets to %s, want %s", c.sent, piece, got, want)
			}
			conn.Close()
		}
	}
	r.Until("the refusals are counted", func() bool { return r.Refused("many", "first_bytes") == refused })
	spoken := r.Listener("many").Protocols
	if spoken["ssh"] != 2 || spoken["http1"] != 16 || spoken["postgres"] != 6 || spoken["redis"] != 2 || spoken["other"] != 4 || len(spoken) != 5 {
		t.Errorf("clients by protocol: %v", spoken)
	}
}

// TestSilence: a client that says nothing gets to the route for that. One that is late with the rest of what it says is
// refused.
func TestSilence(t *testing.T) {
	t.Parallel()

	r := startMany(t, "100ms", "1s")
	servedBy(t, r.At("many"), "smtp")
	c := client(t, r.At("many"))
	fmt.Fprint(c, "GET /admin")
	gone(t, c)
	r.Until("the refusal is counted", func() bool { return r.Refused("many", "preread") == 1 })
}

// TestRouteByTLV: a TLV of the client's PROXY header decides the route, whatever the client says.
func TestRouteByTLV(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - {name: tlv, bind: "127.0.0.1:0", accept_proxy: {}, upstream: rest, routes: [{match: {tlv: [{type: 0xE0, text: vpc-1}]}, upstream: vpc}]}
upstreams: [{name: vpc, endpoints: [%q]}, {name: rest, endpoints: [%q]}]`, greeted(t, "vpc"), greeted(t, "rest")))
	at := netip.MustParseAddrPort("192.0.2.1:4711")
	for tlvs, want := range map[string]string{"\xe0\x00\x05vpc-1": "vpc", "\xe0\x00\x05vpc-2": "rest", "": "rest"} {
		c := client(t, r.At("tlv"))
		header := proxyproto.Append(nil, 2, &proxyproto.Connection{Source: at, Destination: at, TLVs: []byte(tlvs)})
		must(t, second(c.Write(append(header, 'x'))))
		if got := line(t, c); got != want+` "x"` {
			t.Errorf("%q gets to %s, want %s", tlvs, got, want)
		}
	}
}

// TestOnDataOfTLS: where TLS ends here, connect: on_data waits for the first decrypted byte. A client that is silent after
// its handshake is none of the endpoint's, which would fail by first_byte for it.
func TestOnDataOfTLS(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	endpoint := sockets.Server(t, func(c net.Conn) {
		reached.Add(1)
		sockets.Echo(c)
	})
	cert, key := certificate.New(t, "front.test")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, connect: on_data, tls: {certificates: [{cert: c.pem, key: k.pem}]}, timeouts: {preread: 30s, first_byte: 20s}}
  - {name: hasty, bind: "127.0.0.1:0", upstream: u, connect: on_data, tls: {certificates: [{cert: c.pem, key: k.pem}]}, timeouts: {preread: 3s, first_byte: 10ms}}
upstreams: [{name: u, endpoints: [{name: e, address: %q}], health_check: off}]`, endpoint), "c.pem", cert, "k.pem", key)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := &tls.Config{RootCAs: trusting(cert), ServerName: "front.test", MaxVersion: version}
		before, refused := reached.Load(), r.Refused("hasty", "tls")+r.Refused("hasty", "preread")
		c := tls.Client(client(t, r.At("hasty")), cfg)
		must(t, c.Handshake())
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a silent client gets a byte")
		}
		r.Until("a silent client refused", func() bool { return r.Refused("hasty", "tls")+r.Refused("hasty", "preread") == refused+1 })
		if n, e := reached.Load(), r.Endpoint("u", "e"); n != before || e.Failures != 0 {
			t.Errorf("the endpoint has got %d connections of a silent client, and has %d failures", n-before, e.Failures)
		}
		for _, size := range []int{1, 4096, 4097, 100_000} { // less than is awaited, as much, and more than a record
			c := tls.Client(client(t, r.At("l")), cfg)
			must(t, c.Handshake())
			sent, back := []byte(strings.Repeat("x", size-1)+"\n"), make([]byte, size)
			must(t, second(c.Write(sent)))
			if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(sent, back) {
				t.Fatalf("%d bytes: got other ones, or %v", size, err)
			}
			c.Close()
		}
	}
}
