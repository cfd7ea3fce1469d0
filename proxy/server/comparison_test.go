package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// liner is a server of lines: it echoes each, but for the word "differ", after which comes its name.
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
	if _, err := io.WriteString(c, line); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1); b[0] != '\n'; {
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
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
	if err := r.ResetMirrors("l", "test"); err != nil || r.Listener("l").Mirrors.Comparisons[0].Compared != 0 || compared(r, "clear", 6)[0].Compared != 6 {
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
	if err := r.ResetMirrors("l", "test"); err != nil {
		t.Fatal(err)
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
