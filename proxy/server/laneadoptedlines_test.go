package server_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestLaneAdoptedLines: many adopted sessions that end at once, also right before the process, have each a line: they wait for places in the session log.
func TestLaneAdoptedLines(t *testing.T) {
	t.Parallel()

	r := start(t, `session_log: {to: sessions.log}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [`+sockets.Server(t, sockets.Echo)+`]}]`)
	const many = 20_000 // more than a log has places for
	r.AdoptEnded(many)
	r.Until("each has a line", func() bool { return r.Status().SessionLog.Lines == many })
	r.AdoptEnded(many)
	if err := r.End(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(r.Dir, "sessions.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n != 2*many {
		t.Errorf("the log has %d lines, want %d", n, 2*many)
	}
}
