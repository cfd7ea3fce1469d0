package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPartsSayWhatTheyWaitFor: for a draining endpoint or listener with sessions, the log reports
// every ten seconds how many there are and the end time. The same holds for a removed endpoint.
func TestPartsSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := func(endpoints string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%s], drain_timeout: 1h}]`, endpoints)
	}
	r := start(t, text(fmt.Sprintf("{name: a, address: %q}, {name: b, address: %q}", a, b)))
	conns := many(t, 6, r.At("l"))
	rest := many(t, 2, r.At("m"))
	r.Until("all sessions are joined", func() bool { return r.Status().Upstreams[0].Active == 8 })
	says := func(when string, in time.Duration, lines ...string) {
		t.Helper()
		before := len(r.Log.String())
		r.TellDrains(in)
		text := r.Log.String()[before:]
		if n := strings.Count(text, "drain waits for"); n != len(lines) {
			t.Errorf("%s: %d lines, want %q:\n%s", when, n, lines, text)
		}
		for _, line := range lines {
			if !strings.Contains(text, line) {
				t.Errorf("%s: want %s:\n%s", when, line, text)
			}
		}
	}
	if err := r.DrainEndpoint("u", "a", true, "test"); err != nil {
		t.Fatal(err)
	}
	const ofA, ofB, ofL = `msg="drain waits for sessions" upstream=u endpoint=a sessions=4 until=20`, "upstream=u endpoint=b sessions=4 until=20", "listener=l address=127.0.0.1:"
	says("soon", 9*time.Second)
	says("after ten seconds", 11*time.Second, ofA)
	says("soon after that", 20*time.Second)
	says("after ten more", 22*time.Second, ofA)
	if err := r.DrainListener("l", "test"); err != nil {
		t.Fatal(err)
	}
	says("with a listener", 33*time.Second, ofA, ofL)
	r.Reload(text(fmt.Sprintf("{name: a, address: %q}", a)))
	says("with one that is removed, and the listener drained still", 44*time.Second, ofA, ofB, ofL)
	if err := r.DrainEndpoint("u", "a", false, "test"); err != nil {
		t.Fatal(err)
	}
	says("without one that is taken back", 55*time.Second, ofB, ofL)
	for _, c := range append(conns, rest...) {
		c.Close()
	}
	r.Until("no client is connected", func() bool { return r.Status().Connections.Active == 0 })
	says("at the end", time.Minute+10*time.Second)
}
