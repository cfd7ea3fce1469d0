package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLaneDevicesAreChecked: check warns of devices that are not there where a listener has the lane, and says what run would do; the error of run is in
// the same words, and names them.
func TestLaneDevicesAreChecked(t *testing.T) {
	t.Parallel()

	const missing = "lane.devices: there is no network device nowhere0 here"
	file := filepath.Join(t.TempDir(), "p.yaml")
	text := func(lane, devices string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(`
lane: {devices: [`+devices+`]}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, lane: `+lane+`}]
upstreams: [{name: u, endpoints: ["127.0.0.1:1"], health_check: off}]`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ lane, devices, want string }{
		{"require", "lo, nowhere0", "warning: " + missing + ": penstock run would not start here\n"},
		{"auto", "nowhere0", "warning: " + missing + ": sessions would stay in user space here\n"},
		{"off", "nowhere0", ""},
		{"auto", "lo", ""},
	} {
		text(c.lane, c.devices)
		code, _, stderr := call("check", file)
		if code != 0 || strings.Contains(stderr, "lane.devices") != (c.want != "") || !strings.Contains(stderr, c.want) {
			t.Errorf("%s at %s: %d, %q", c.lane, c.devices, code, stderr)
		}
	}
	text("require", "nowhere0")
	if code, _, stderr := call("run", file); code == 0 || !strings.Contains(stderr, missing) || strings.Contains(stderr, "route ip+net") {
		t.Errorf("run: %d, %q", code, stderr)
	}
}
