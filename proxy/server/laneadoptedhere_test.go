package server_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/server"
)

// TestLaneAdoptedHere: with lane.leave an adopted session that has come back to user space is waited for by the drain, and is cut by the end of the process, as
// its line says; those in the lane go on.
func TestLaneAdoptedHere(t *testing.T) {
	t.Parallel()

	pins := pinned(t)
	if pins == "" {
		return
	}
	text := `session_log: {to: sessions.log, format: json}
lane: {devices: [lo], sessions: 64, after: 5ms, default: require, pins: ` + pins + `, leave: true}
listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [` + sockets.Server(t, sockets.Echo) + `]}]`
	before := start(t, text)
	here, away := before.leaveBy(t, "web", 1), before.leaveBy(t, "web", 2)
	if err := before.End(); err != nil {
		t.Fatal(err)
	}
	next := start(t, text)
	next.Until("they are adopted", func() bool { return len(next.adoptedBy(t, admin.SessionQuery{})) == 2 })
	_ = here.SetDeadline(time.Now().Add(patience))
	_ = away.SetDeadline(time.Now().Add(patience))
	if err := next.AdoptedComeBack(here.LocalAddr().String(), patience); err != nil {
		t.Fatal(err)
	}
	echoes(t, here, "in user space")
	echoes(t, away, "in the lane")
	err := next.End()
	if !errors.Is(err, server.ErrCut) || !strings.Contains(fmt.Sprint(err), ": 1") {
		t.Errorf("one session is cut: %v", err)
	}
	next.Logs("drain waits for adopted sessions", "sessions=1")
	next.Logs("go on without this process", "sessions=1")
	if err := gone(t, here); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	echoes(t, away, "without a process")
	lines := next.adoptedLines(t)
	for c, want := range map[string]string{here.LocalAddr().String(): "the process ends", away.LocalAddr().String(): "the process ends, and its session goes on without it"} {
		if line := lines[c]; line["error"] != want || line["reason"] != "canceled" {
			t.Errorf("want %q: %v", want, line)
		}
	}
}
