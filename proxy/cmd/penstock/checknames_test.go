package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/cli"
)

// TestNamesThatDoNotResolve: check warns of the endpoints' names that have no address, or of which that cannot be found out without
// a name server. Many names are one line, and the file is good all the same.
func TestNamesThatDoNotResolve(t *testing.T) {
	t.Parallel()
	var endpoints []string
	for i := range 500 {
		endpoints = append(endpoints, fmt.Sprintf("%q", fmt.Sprintf("nosuch%03d.invalid:80", i)))
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	put := func(list ...string) (stderr string) {
		text := "listeners: [{name: l, bind: '127.0.0.1:1', upstream: u}]\nupstreams: [{name: u, endpoints: [" + strings.Join(list, ", ") + "]}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := call("check", file)
		if code != cli.ExitOK {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		return stderr
	}
	if stderr := put("'127.0.0.1:80'", "'[::1]:80'", "'localhost:80'", "'unix:/tmp/nosuch.invalid'"); strings.Contains(stderr, "names") {
		t.Errorf("without a name that does not resolve: %s", stderr)
	}
	stderr := put(append(endpoints, "'127.0.0.1:80'")...)
	lines := regexp.MustCompile(`warning: names of endpoints (do not resolve here|could not be looked up here, and may not resolve) \((\d+)\): nosuch\d+\.invalid.*`).FindAllStringSubmatch(stderr, -1)
	sum := 0
	for _, line := range lines {
		var n int
		if _, err := fmt.Sscan(line[2], &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum != 500 || strings.Count(stderr, "nosuch") > 40 || !strings.Contains(stderr, "and 495 more") && len(lines) == 1 {
		t.Errorf("%d names in %d lines: %s", sum, len(lines), stderr)
	}
}
