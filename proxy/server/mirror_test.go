package server_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// A received is everything that a server got by one connection, and how that ended.
type received struct {
	bytes []byte
	err   error // nil: by the end of file
}

// recorder is a server that echoes, and passes on everything that a connection has brought once that has ended.
func recorder(t *testing.T) (address string, ended <-chan received) {
	t.Helper()
	all := make(chan received, 1000)
	return sockets.Server(t, func(c net.Conn) {
		var b bytes.Buffer
		_, err := io.Copy(io.MultiWriter(&b, struct{ io.Writer }{c}), struct{ io.Reader }{c})
		all <- received{b.Bytes(), err}
	}), all
}

func next(t *testing.T, from <-chan received) received {
	t.Helper()
	select {
	case r := <-from:
		return r
	case <-time.After(patience):
		t.Fatal("no connection has ended")
		panic("unreachable")
	}
}

// endedMirrors is the status of a listener's mirrors, once there are none and so many have ended.
func endedMirrors(r *rig, listener string, n int64) (m *admin.Mirrors) {
	r.Until(fmt.Sprintf("%d mirrors of %s have ended", n, listener), func() bool {
		var sum int64
		if m = r.Listener(listener).Mirrors; m == nil || m.Running > 0 {
			return false
		}
		for _, k := range m.Ended {
			sum += k
		}
		return sum >= n
	})
	return m
}

// sendMixture sends small messages and bulk, of which all that is echoed is read meanwhile, to half-closed.
func sendMixture(t *testing.T, c net.Conn, seed uint64, first string) []byte {
	t.Helper()
	random, sent := rand.New(rand.NewPCG(seed, 1)), []byte(first)
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(c)
		got <- b
	}()
	if _, err := io.WriteString(c, first); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		n := 1 + random.IntN(200)
		if random.IntN(3) == 0 {
			n = 1 + random.IntN(100<<10)
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, b...)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b := <-got
	if b = b[len(header(b)):]; !bytes.Equal(b, sent) { // its header was echoed, too
		t.Fatalf("%d bytes were echoed of %d", len(b), len(sent))
	}
	return sent
}

// TestMirrored: the mirror's endpoint gets byte for byte what the endpoint gets, to the end of file: whatever was read
// ahead or taken before the session, behind a PROXY header of its own, and decrypted where TLS ends here.
func TestMirrored(t *testing.T) {
	t.Parallel()

	primary, atPrimary := recorder(t)
	shadow, atShadow := recorder(t)
	cert, key := certificate.New(t, "front.test")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: plain, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s, patience: 30s}}
  - {name: both, bind: "127.0.0.1:0", upstream: h, mirror: {upstream: sh, patience: 30s}, connect: on_data}
  - {name: shadow, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: sh, patience: 30s}, accept_proxy: {from: [127.0.0.1]}}
  - {name: routed, bind: "127.0.0.1:0", routes: [{match: {sni: ["*"]}, upstream: h, mirror: {upstream: s, patience: 30s}}], upstream: h, mirror: {upstream: s, patience: 30s}, timeouts: {preread: 50ms}}
  - {name: ends, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: sh, patience: 30s}, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
  - {name: name, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: n, patience: 30s}}
upstreams:
  - {name: u, endpoints: [%[1]q], health_check: off}
  - {name: h, endpoints: [%[1]q], send_proxy: 1, health_check: off}
  - {name: s, endpoints: [%[2]q], health_check: off}
  - {name: sh, endpoints: [%[2]q], send_proxy: 1, health_check: off}
  - {name: n, endpoints: [%[3]q], health_check: off}`, primary, shadow, strings.Replace(shadow, "127.0.0.1", "localhost", 1)), "c.pem", cert, "k.pem", key)
	for i, c := range []struct {
		listener, before string
		proxied          bool // the mirror's endpoint gets a PROXY header
	}{{"plain", "", false}, {"both", "", true}, {"shadow", "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n", true}, {"routed", "", false}, {"ends", "", true}, {"name", "", false}} {
		tcp := client(t, r.At(c.listener))
		if _, err := io.WriteString(tcp, c.before); err != nil {
			t.Fatal(err)
		}
		var conn net.Conn = tcp
		if c.listener == "ends" {
			conn = tls.Client(tcp, &tls.Config{ServerName: "front.test", InsecureSkipVerify: true})
		}
		sent := sendMixture(t, conn, uint64(i), "hello\n")
		at, there := next(t, atPrimary), next(t, atShadow)
		if h := header(at.bytes); len(h) > 0 {
			at.bytes = at.bytes[len(h):]
		}
		h := header(there.bytes)
		if there.bytes = there.bytes[len(h):]; !bytes.Equal(at.bytes, sent) || !bytes.Equal(there.bytes, sent) || at.err != nil || there.err != nil {
			t.Errorf("%s: %d bytes at the endpoint (%v), %d at the mirror (%v), of %d", c.listener, len(at.bytes), at.err, len(there.bytes), there.err, len(sent))
		}
		if len(h) > 0 != c.proxied || c.before != "" && !strings.HasPrefix(string(h), "PROXY TCP4 192.0.2.7 ") {
			t.Errorf("%s: the mirror's endpoint got the header %q", c.listener, h)
		}
		_ = conn.Close()
		m := endedMirrors(r, c.listener, 1)
		if m.Ended["complete"] != 1 || m.Teed+m.Copied != int64(len(sent)+len(h)) || m.Undelivered != 0 || m.Answered == 0 {
			t.Errorf("%s: %+v", c.listener, m)
		}
	}
	for _, u := range r.Status().Upstreams {
		if u.Active != 0 {
			t.Errorf("%s has %d sessions", u.Name, u.Active)
		}
	}
}

// header returns the PROXY header at the beginning of bytes.
func header(b []byte) []byte {
	if !bytes.HasPrefix(b, []byte("PROXY ")) {
		return nil
	}
	return b[:bytes.IndexByte(b, '\n')+1]
}

// TestMirrorOfAHello: the mirror's endpoint gets the hello by which its client was routed, and what follows.
func TestMirrorOfAHello(t *testing.T) {
	t.Parallel()

	for _, proxy := range []string{"", ", send_proxy: 2"} {
		primary, atPrimary := recorder(t)
		shadow, atShadow := recorder(t)
		r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{match: {sni: [a.test]}, upstream: u}], mirror: {upstream: s}}]
upstreams: [{name: u, endpoints: [%q]%s, health_check: off}, {name: s, endpoints: [%q]%[2]s, health_check: off}]`, primary, proxy, shadow))
		c := client(t, r.At("l"))
		go func() { _ = tls.Client(c, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true}).Handshake() }()
		_ = sendMixtureAfter(t, c)
		at, there := next(t, atPrimary), next(t, atShadow)
		if !bytes.Equal(at.bytes, there.bytes) || len(at.bytes) < 200 {
			t.Errorf("%q: %d bytes at the endpoint, %d at the mirror", proxy, len(at.bytes), len(there.bytes))
		}
	}
}

// sendMixtureAfter sends something behind a hello that is echoed, and ends.
func sendMixtureAfter(t *testing.T, c *net.TCPConn) error {
	t.Helper()
	r := make([]byte, 1)
	if _, err := c.Read(r); err != nil { // the endpoint has got the hello
		t.Fatal(err)
	}
	if _, err := c.Write(bytes.Repeat([]byte("x"), 100_000)); err != nil {
		t.Fatal(err)
	}
	return c.CloseWrite()
}

// TestMirrorsOfBadShadows: whatever the mirror's endpoint is, no client notices. The reason is counted, and no verdict
// on the endpoint comes of it.
func TestMirrorsOfBadShadows(t *testing.T) {
	t.Parallel()

	primary, _ := recorder(t)
	frozen, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close()
	for name, c := range map[string]struct {
		shadow, checks, reason string
		bulk                   int
	}{
		"refuses":     {sockets.Refusing(t), "off", "connect", 1},
		"silent":      {sockets.Silent(t), "off", "late behind", 1},
		"frozen":      {frozen.Addr().String(), "off", "late behind", 16 << 20},
		"not healthy": {sockets.Refusing(t), "{type: tcp, interval: 20ms, fast_interval: 10ms, fall: 1}", "no_endpoint", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s, patience: 100ms}}]
upstreams: [{name: s, endpoints: [%q], health_check: %s}, {name: u, endpoints: [%q]}]`, c.shadow, c.checks, primary))
			if c.checks != "off" {
				r.Until("it is down", func() bool { return r.Endpoint("s", c.shadow).State == admin.Down })
			}
			for i := range 3 {
				conn := client(t, r.At("l"))
				_ = sendMixture(t, conn, uint64(i), strings.Repeat("x", c.bulk))
				_ = conn.Close()
			}
			var n int64
			m := endedMirrors(r, "l", 3)
			for reason := range strings.FieldsSeq(c.reason) {
				n += m.Ended[reason]
			}
			if n != 3 || m.Undelivered > 0 && c.reason == "no_endpoint" || m.Undelivered == 0 && c.bulk > 1 {
				t.Errorf("%+v", m)
			}
			if e := r.Endpoint("s", c.shadow); e.Active != 0 || e.Failures != 0 || e.Failing != nil {
				t.Errorf("the mirror's endpoint: %+v", e)
			}
		})
	}
}

// TestMirrorsCountAtTheirEndpoint: a mirror is one of the endpoint's connections; where there is no room there is none.
func TestMirrorsCountAtTheirEndpoint(t *testing.T) {
	t.Parallel()

	primary, _ := recorder(t)
	shadow, _ := recorder(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}, {name: s, endpoints: [{address: %q, connections: 1}], health_check: off}]`, primary, shadow))
	first, second := client(t, r.At("l")), client(t, r.At("l"))
	echoes(t, first, "first")
	echoes(t, second, "second")
	if e, m := r.Endpoint("s", shadow), r.Listener("l").Mirrors; e.Active != 1 || e.Total != 1 || m.Running != 1 || m.Ended["full"] != 1 {
		t.Errorf("%+v, %+v", e, m)
	}
	_, _ = first.Close(), second.Close()
	endedMirrors(r, "l", 2)
	third := client(t, r.At("l"))
	echoes(t, third, "third")
	if e := r.Endpoint("s", shadow); e.Active != 1 || e.Total != 2 {
		t.Errorf("%+v", e)
	}
}

// TestMirrorsAreASample: of many sessions the percentage is mirrored, and the sessions of a route by its own mirror.
func TestMirrorsAreASample(t *testing.T) {
	t.Parallel()

	primary, _ := recorder(t)
	shadow, _ := recorder(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s, percent: 12.5}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}, {name: s, endpoints: [%q], health_check: off}]`, primary, shadow))
	for range 400 {
		c := client(t, r.At("l"))
		echoes(t, c, "x")
		_ = c.Close()
	}
	m := endedMirrors(r, "l", 48)
	if n := m.Ended["complete"]; n < 48 || n > 52 {
		t.Errorf("%d of 400 were mirrored, want 50: %+v", n, m)
	}
	if total := r.Endpoint("s", shadow).Total; total < 48 || total > 52 {
		t.Errorf("the mirror's endpoint had %d sessions", total)
	}
}

// TestMirrorsAndReloads: sessions keep the mirror that they began with. One whose endpoint is removed ends with
// the drain of that, and its session does not.
func TestMirrorsAndReloads(t *testing.T) {
	t.Parallel()

	primary, atPrimary := recorder(t)
	first, atFirst := recorder(t)
	second, atSecond := recorder(t)
	text := `
listeners: [{name: l, bind: "127.0.0.1:` + sockets.Port(t) + `", upstream: u, mirror: {upstream: %s, patience: 30s}}]
upstreams: [{name: u, endpoints: ["` + primary + `"], health_check: off}, {name: s, endpoints: ["` + first + `"], health_check: off, on_removed: drain, drain_timeout: 300ms}, {name: v, endpoints: [%q], health_check: off}]`
	r := start(t, fmt.Sprintf(text, "s", second))
	old := client(t, r.At("l"))
	echoes(t, old, "one")
	r.Reload(fmt.Sprintf(text, "v", second))
	fresh := client(t, r.At("l"))
	echoes(t, fresh, "two")
	echoes(t, old, "three")
	_ = fresh.Close()
	if got := next(t, atSecond); string(got.bytes) != "two" {
		t.Errorf("the new mirror has got %q", got.bytes)
	}
	next(t, atPrimary)
	r.Reload(strings.Replace(fmt.Sprintf(text, "v", second), first, sockets.Refusing(t), 1))
	if got := next(t, atFirst); string(got.bytes) != "onethree" || !errors.Is(got.err, syscall.ECONNRESET) {
		t.Errorf("the old mirror has got %q, %v", got.bytes, got.err)
	}
	echoes(t, old, "four")
	if m := r.Listener("l").Mirrors; m.Ended["cut"] != 1 || m.Ended["complete"] != 1 {
		t.Errorf("%+v", m)
	}
}

// TestMirrorsAtTheEnd: the end of the process waits for no mirror.
func TestMirrorsAtTheEnd(t *testing.T) {
	t.Parallel()

	primary, atPrimary := recorder(t)
	shadow, atShadow := recorder(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s, patience: 1h}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}, {name: s, endpoints: [%q], health_check: off}]`, primary, shadow))
	c := client(t, r.At("l"))
	echoes(t, c, "one")
	r.Stop()
	next(t, atPrimary)
	if got := next(t, atShadow); string(got.bytes) != "one" || got.err == nil {
		t.Errorf("the mirror has got %q, %v", got.bytes, got.err)
	}
}

// TestMirrorOfAClientThatIsReset: its mirror is reset, too.
func TestMirrorOfAClientThatIsReset(t *testing.T) {
	t.Parallel()

	primary, atPrimary := recorder(t)
	shadow, atShadow := recorder(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}, {name: s, endpoints: [%q], health_check: off}]`, primary, shadow))
	c := client(t, r.At("l"))
	echoes(t, c, "one")
	_ = c.SetLinger(0)
	_ = c.Close()
	next(t, atPrimary)
	if got := next(t, atShadow); string(got.bytes) != "one" || !errors.Is(got.err, syscall.ECONNRESET) {
		t.Errorf("the mirror has got %q, %v", got.bytes, got.err)
	}
	if m := endedMirrors(r, "l", 1); m.Ended["cut"] != 1 {
		t.Errorf("%+v", m)
	}
}
