package server_test

import (
	"bufio"
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
	"github.com/penstock/penstock/internal/testutil/condition"
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
	case <-time.After(condition.Patience):
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
	sends(t, c, first)
	for range 30 {
		n := 1 + random.IntN(200)
		if random.IntN(3) == 0 {
			n = 1 + random.IntN(100<<10)
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		must(t, second(c.Write(b)))
		sent = append(sent, b...)
	}
	must(t, c.(interface{ CloseWrite() error }).CloseWrite())
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
  - {name: routed, bind: "127.0.0.1:0", routes: [{match: {sni: ["*"]}, upstream: h, mirror: {upstream: s, patience: 30s}}], upstream: h, mirror: {upstream: s, patience: 30s}, timeouts: {preread: 2s}}
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
		sends(t, tcp, c.before)
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

// TestMirrorsOfBadShadows: whatever the mirror's endpoint is, no client notices. The reason is counted, and no verdict
// on the endpoint comes of it.
func TestMirrorsOfBadShadows(t *testing.T) {
	t.Parallel()

	primary, _ := recorder(t)
	frozen, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody reads
	must(t, err)
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

// TestMirrorsCountAtTheirEndpoint: a mirror is one of the endpoint's connections; where there is no room there is none. It is
// no session, which began at the endpoint and would never end there.
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
	if e, m := r.Endpoint("s", shadow), r.Listener("l").Mirrors; e.Active != 1 || e.Total != 0 || m.Running != 1 || m.Ended["full"] != 1 {
		t.Errorf("%+v, %+v", e, m)
	}
	_, _ = first.Close(), second.Close()
	endedMirrors(r, "l", 2)
	third := client(t, r.At("l"))
	echoes(t, third, "third")
	if e := r.Endpoint("s", shadow); e.Active != 1 || e.Total != 0 {
		t.Errorf("%+v", e)
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

// liner is a server of lines: it echoes each, except for the word "differ", after which comes its
// name.
func liner(t *testing.T, name string) string {
	t.Helper()
	return sockets.Server(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := io.WriteString(c, strings.Replace(line, "differ", "differ "+name, 1)); err != nil {
				return
			}
		}
	})
}

// compared returns the comparisons of a listener once so many answers were compared.
func compared(r *rig, listener string, n int64) (list []admin.Comparison) {
	r.Until(fmt.Sprintf("%d answers of %s were compared", n, listener), func() bool {
		reports, err := r.Mirrors(listener)
		if err != nil || len(reports.Mirrors) != 1 {
			return false
		}
		var sum int64
		list = reports.Mirrors[0].Comparisons
		for i := range list {
			sum += list[i].Compared
		}
		return sum >= n
	})
	return list
}

func sayLines(t *testing.T, c net.Conn, lines ...string) {
	t.Helper()
	for _, line := range lines {
		echoesAs(t, c, line+"\n")
	}
}

// echoesAs writes a line and reads one.
func echoesAs(t *testing.T, c net.Conn, line string) {
	t.Helper()
	sends(t, c, line)
	for b := make([]byte, 1); b[0] != '\n'; {
		must(t, second(c.Read(b)))
	}
}

// TestCompared: the answers of a mirror's endpoint are compared with those of the client's, with masks, and differences
// are kept as examples, redacted unless the configuration says otherwise.
func TestCompared(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s, compare: {framing: lines}}}
  - {name: clear, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s, compare: {framing: lines, mask: ["masked .*"], redact: false, examples: 1}}}
  - {name: none, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s, compare: false}}
upstreams: [{name: u, endpoints: [%q], health_check: off}, {name: s, endpoints: [%q], health_check: off}]`, liner(t, "1"), liner(t, "2")))
	for _, name := range []string{"l", "clear", "none"} {
		c := client(t, r.At(name))
		sayLines(t, c, "one", "two", "differ", "masked differ", "three", "differ again")
		_ = c.Close()
		endedMirrors(r, name, 1)
	}
	l := compared(r, "l", 6)[0]
	if l.Equal != 3 || l.Different != 3 || l.To != "s" || l.Framing != "lines" || l.Route != "" || l.Sessions != 1 || len(l.Stopped) != 0 {
		t.Errorf("%+v", l)
	}
	if len(l.Examples) != 3 || !l.Examples[0].Redacted || l.Examples[0].Primary.Text != `xxxxxx 0\n` {
		t.Errorf("%+v", l.Examples)
	}
	if n := l.Lag.Slower + l.Lag.Faster + l.Lag.Alike; n == 0 || n > 6 {
		t.Errorf("%+v", l.Lag)
	}
	if c := compared(r, "clear", 6)[0]; c.Equal != 4 || c.Different != 2 || len(c.Examples) != 1 || c.Examples[0].Primary.Text != `differ 1\n` || c.Examples[0].Shadow.Text != `differ 2\n` {
		t.Errorf("%+v", c)
	}
	if m, err := r.Mirrors("none"); err != nil || len(m.Mirrors) != 1 || len(m.Mirrors[0].Comparisons) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	if all, err := r.Mirrors(""); err != nil || len(all.Mirrors) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	if st := r.Listener("l").Mirrors.Comparisons; len(st) != 1 || st[0].Equal != 3 || len(st[0].Examples) != 0 || len(st[0].Names) != 0 {
		t.Errorf("%+v", st)
	}
	if n := r.Status().Summary.Fallbacks["compare"]; n != 2 {
		t.Errorf("%d fallbacks", n)
	}
	if _, err := r.Mirrors("x"); err == nil {
		t.Error("a listener that there is not has mirrors")
	}
	if was, err := r.ResetMirrors("l", "test"); err != nil || len(was.Mirrors[0].Comparisons[0].Names) == 0 || r.Listener("l").Mirrors.Comparisons[0].Compared != 0 || compared(r, "clear", 6)[0].Compared != 6 {
		t.Errorf("%v: %+v", err, r.Listener("l").Mirrors.Comparisons)
	}
}

// TestMirrorReportsAreReset: after a reset the report has mirrors that ended since, and says since when. The status goes on.
func TestMirrorReportsAreReset(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s, compare: {framing: lines}}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}, {name: s, endpoints: [%q], health_check: off}]`, liner(t, "1"), sockets.Refusing(t)))
	session := func(n int64) {
		c := client(t, r.At("l"))
		sayLines(t, c, "one")
		_ = c.Close()
		endedMirrors(r, "l", n)
	}
	report := func() *admin.MirrorReport {
		m, err := r.Mirrors("l")
		if err != nil || len(m.Mirrors) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		return &m.Mirrors[0]
	}
	session(1)
	if m := report(); m.Ended["connect"] != 1 || !m.Since.IsZero() {
		t.Errorf("%+v", m)
	}
	before := time.Now()
	if was, err := r.ResetMirrors("l", "test"); err != nil || len(was.Mirrors) != 1 || was.Mirrors[0].Ended["connect"] != 1 || !was.Mirrors[0].Since.IsZero() {
		t.Errorf("%+v, %v", was, err)
	}
	if m := report(); len(m.Ended) != 0 || m.Since.Before(before) || m.Comparisons[0].Since.Before(before) || m.Undelivered != 0 {
		t.Errorf("%+v", m)
	}
	session(2)
	if m := report(); m.Ended["connect"] != 1 || len(m.Ended) != 1 {
		t.Errorf("%+v", m)
	}
	if m := r.Listener("l").Mirrors; m.Ended["connect"] != 2 {
		t.Errorf("%+v", m)
	}
}

// TestSilentMirrors: complete mirrors whose endpoint has answered nothing are counted, by themselves and in a row.
func TestSilentMirrors(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s, patience: 50ms}}, {name: m, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: v}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}, {name: s, endpoints: [%q], health_check: off}, {name: v, endpoints: [%q], health_check: off}]`,
		liner(t, "1"), sockets.Server(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), liner(t, "2")))
	for n := range int64(3) {
		for _, name := range []string{"l", "m"} {
			c := client(t, r.At(name))
			sayLines(t, c, "one")
			_ = c.Close()
			endedMirrors(r, name, n+1)
		}
	}
	if m := r.Listener("l").Mirrors; m.Ended["complete"] != 3 || m.Unanswered != 3 || m.Silent != 3 {
		t.Errorf("%+v", m)
	}
	if m := r.Listener("m").Mirrors; m.Ended["complete"] != 3 || m.Unanswered != 0 || m.Silent != 0 {
		t.Errorf("%+v", m)
	}
}

// TestComparisonsAndReloads: a session keeps the comparison that it began with. The report of a mirror goes on over a
// reload that changes neither its comparison nor its upstream, and else begins a new one.
func TestComparisonsAndReloads(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:` + sockets.Port(t) + `", upstream: u, %s, routes: [{match: {source: [127.0.0.1]}, upstream: u%s}]}]
upstreams: [{name: u, endpoints: ["` + liner(t, "1") + `"], health_check: off}, {name: s, endpoints: ["` + liner(t, "2") + `"], health_check: off}]`
	with := func(listener, route string) string { return fmt.Sprintf(text, listener, route) }
	r := start(t, with("mirror: {upstream: s, compare: {framing: lines}}", ""))
	old := client(t, r.At("l"))
	sayLines(t, old, "one", "differ")
	compared(r, "l", 2)
	r.Reload(with("mirror: {upstream: s, percent: 50, patience: 2s, compare: {framing: lines}}", ""))
	sayLines(t, old, "three")
	if k := compared(r, "l", 3); len(k) != 1 || k[0].Compared != 3 {
		t.Errorf("%+v", k)
	}
	r.Reload(with("mirror: {upstream: s, compare: {framing: lines}}", ", mirror: {upstream: s, compare: {framing: lines, mask: ['differ .']}}"))
	sayLines(t, old, "differ")
	fresh := client(t, r.At("l"))
	sayLines(t, fresh, "differ")
	if k := compared(r, "l", 5); len(k) != 2 || k[0].Different != 2 || k[0].Route != "" || k[1].Equal != 1 || k[1].Route != "source: [127.0.0.1/32]" {
		t.Errorf("%+v", k)
	}
	r.Reload(with("mirror: {upstream: s, compare: {framing: lines, redact: false}}", ", mirror: {upstream: s, compare: {framing: lines, mask: ['differ .']}}"))
	sayLines(t, fresh, "differ")
	if k := compared(r, "l", 2); len(k) != 2 || k[0].Compared != 0 || k[1].Equal != 2 {
		t.Errorf("%+v", k)
	}
	r.Reload(with("mirror: {upstream: s}", ""))
	sayLines(t, old, "four")
	sayLines(t, fresh, "five")
	if m, err := r.Mirrors("l"); err != nil || len(m.Mirrors[0].Comparisons) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
}
