package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/server"
)

// adoptedLines returns the lines of the session log, by the names of their fields and by client.
func (r *rig) adoptedLines(t *testing.T) map[string]map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.Dir, "sessions.log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]map[string]any)
	for line := range bytes.Lines(b) {
		var got map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		name, _ := got["client"].(string)
		if lines[name] != nil {
			t.Errorf("twice: %s", line)
		}
		lines[name] = got
	}
	return lines
}

// TestLaneAdoptedSessionLog: an adopted session has a line at its end, with the fields that are known of it and no other ones; those of
// the end of the process have one as well, and those that go on without it. A listener without a session log has none.
func TestLaneAdoptedSessionLog(t *testing.T) {
	t.Parallel()

	pins := pinned(t)
	if pins == "" {
		return
	}
	shop := sockets.Server(t, sockets.Echo)
	text := `%s
lane: {devices: [lo], sessions: 64, after: 5ms, default: require, pins: ` + pins + `, leave: %v}
listeners: [{name: web, bind: "127.0.0.1:0", upstream: shop}, {name: quiet, bind: "127.0.0.1:0", upstream: shop, session_log: false}%s]
upstreams: [{name: shop, health_check: off, endpoints: [{name: one, address: ` + shop + `}]}]`
	before := start(t, fmt.Sprintf(text, "", true, `, {name: old, bind: "127.0.0.1:0", upstream: shop}`))
	clients := make(map[string]*net.TCPConn)
	for n, of := range []string{"web closes", "web resets", "old ended", "quiet closes", "web cut", "web goes on"} {
		listener, _, _ := strings.Cut(of, " ")
		clients[of] = before.leaveBy(t, listener, n+1)
	}
	since := time.Now()
	if err := before.End(); err != nil {
		t.Fatal(err)
	}
	const log = "session_log: {to: sessions.log, format: json}"
	next := start(t, fmt.Sprintf(text, log, true, ""))
	for _, c := range clients {
		_ = c.SetDeadline(time.Now().Add(patience))
		echoes(t, c, "adopted")
	}
	next.Until("they are adopted", func() bool { return len(next.adoptedBy(t, admin.SessionQuery{})) == len(clients) })
	for _, of := range []string{"web closes", "quiet closes"} {
		if err := clients[of].CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_ = gone(t, clients[of])
	}
	next.Until("they have ended", func() bool { return len(next.adoptedBy(t, admin.SessionQuery{})) == len(clients)-2 })
	next.Logs("an adopted session has ended", "client="+clients["quiet closes"].LocalAddr().String(), "listener=quiet")
	_ = clients["web resets"].SetLinger(0)
	_ = clients["web resets"].Close()
	next.Until("it has ended", func() bool { return len(next.adoptedBy(t, admin.SessionQuery{})) == len(clients)-3 })
	if err := next.End(); err != nil {
		t.Fatal(err)
	}
	lasted := time.Since(since)
	lines := next.adoptedLines(t)
	for of, want := range map[string]string{
		"web closes": "web eof  client --", "web resets": "web reset client  CD", "old ended": " canceled   KD", "web cut": "web canceled   KD", "web goes on": "web canceled   KD",
	} {
		line := lines[clients[of].LocalAddr().String()]
		text := func(name string) string { s, _ := line[name].(string); return s }
		if got := strings.Join([]string{text("listener"), text("reason"), text("culprit"), text("ended_first"), text("state")}, " "); got != want {
			t.Errorf("%s: %q, want %q: %v", of, got, want, line)
		}
		delete(lines, clients[of].LocalAddr().String())
		if line["adopted"] != true || line["engine"] != "lane" || line["outcome"] != "joined" || line["event"] != "end" || text("upstream") != "shop" || text("endpoint") != "one" || text("endpoint_address") != shop || len(text("id")) != 32 ||
			line["tls"] != false || !strings.HasPrefix(text("local"), "127.0.0.1:") || text("verdict") == "" {
			t.Errorf("%s: %v", of, line)
		}
		for _, name := range []string{"bytes_to_endpoint", "bytes_to_client", "lane_to_endpoint", "lane_to_client"} {
			if n, _ := line[name].(float64); n < float64(len("adopted")) {
				t.Errorf("%s: %s is %v", of, name, line[name])
			}
		}
		if us, _ := line["duration_us"].(float64); us <= 0 || us > float64(lasted.Microseconds()+time.Hour.Microseconds()) {
			t.Errorf("%s: it has lasted %v us", of, line["duration_us"])
		}
		for _, name := range []string{
			"source", "spliced_to_endpoint", "spliced_to_client", "lost", "accept_wait_us", "queue_us", "pause_us", "connect_us", "client_first_us", "half_close_us", "retries", "failed_attempts", "queues", "queue_before", "loop",
		} {
			if v, there := line[name]; there {
				t.Errorf("%s: %s is %v, and is not known", of, name, v)
			}
		}
		if _, known := line["active_listener"]; known != (line["listener"] != nil) {
			t.Errorf("%s: active_listener %v", of, line["active_listener"])
		}
	}
	if len(lines) > 0 {
		t.Errorf("beside these: %v", lines)
	}
	if n := strings.Count(next.Log.String(), "an adopted session has ended"); n != 1 {
		t.Errorf("the log has %d messages, want that of the listener without a session log", n)
	}

	last := start(t, fmt.Sprintf(text, log, false, ""))
	last.Until("those that go on are adopted", func() bool { return len(last.adoptedBy(t, admin.SessionQuery{})) == 3 })
	if err := last.End(); !errors.Is(err, server.ErrCut) {
		t.Error(err)
	}
	lines = last.adoptedLines(t)
	for _, of := range []string{"old ended", "web cut", "web goes on"} {
		_ = clients[of].SetDeadline(time.Now().Add(patience))
		if err := gone(t, clients[of]); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", of, err)
		}
		if line := lines[clients[of].LocalAddr().String()]; line["reason"] != "canceled" || line["error"] != "the process ends" || line["adopted"] != true {
			t.Errorf("%s: %v", of, line)
		}
	}
}
