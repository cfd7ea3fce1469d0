package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/proxy/cli"
)

// echoServers makes a directory of echo servers. They are the program itself as a sink, which
// echoes unknown requests and needs no other process.
func echoServers(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(me, filepath.Join(dir, programName)); err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\nPATH=" + dir + ":$PATH\nexec penstock-bench part sink 1\n"
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestEchoServers(t *testing.T) {
	full.Only(t, "it measures")
	path := buildProgram(t)
	t.Run("beside the loops", func(t *testing.T) {
		d := startProgram(t, path, "echo-servers", "--dir", echoServers(t, "loop", "std"), "--rounds", "1", "--seconds", "0.05", "--no-syscalls", "--json", "-")
		stdout, stderr, code := d.end()
		doc := document(t, []byte(stdout))
		if code != cli.ExitOK || doc.Method.Baseline != "loop" || len(doc.Scenarios) != 3 || len(doc.LeftOut) != 4 || len(doc.Standings) > 0 {
			t.Fatalf("exit code %d: %s, %+v", code, stderr, doc)
		}
		for _, s := range doc.Scenarios {
			for _, c := range s.Cells {
				if c.Failed != "" || !(c.Figures["requests_per_second"].Median > 0) {
					t.Errorf("%s, %s: %+v", s.Name, c.Contestant, c)
				}
			}
		}
		if !strings.Contains(stderr, "\nloop (baseline) ") || !strings.Contains(stderr, "gnet is not built: ") {
			t.Errorf("report: %s", stderr)
		}
	})
	t.Run("beside the standard library", func(t *testing.T) {
		d := startProgram(t, path, "echo-servers", "--dir", echoServers(t, "gnet", "std"), "--rounds", "1", "--seconds", "0.05", "--no-syscalls")
		if stdout, stderr, code := d.end(); code != cli.ExitOK || !strings.Contains(stdout, "\nstd (baseline) ") || !strings.Contains(stdout, "\ngnet  ") {
			t.Errorf("exit code %d: %s, %s", code, stderr, stdout)
		}
	})
	t.Run("many connections", func(t *testing.T) {
		d := startProgram(t, path, "echo-servers", "--dir", echoServers(t, "gnet", "std"), "--connections", "50", "--services", "echo", "--rounds", "1", "--seconds", "0.05", "--no-syscalls", "--json", "-")
		stdout, stderr, code := d.end()
		doc := document(t, []byte(stdout))
		if code != cli.ExitOK || doc.Method.Baseline != "std" || len(doc.Scenarios) != 1 {
			t.Fatalf("exit code %d: %s, %+v", code, stderr, doc)
		}
		for _, c := range doc.Scenarios[0].Cells {
			for _, figure := range []string{"requests_per_second", "latency_p99_seconds", "both_cpu_seconds_per_request"} {
				if c.Failed != "" || !(c.Figures[figure].Median > 0) {
					t.Errorf("%s, %s: %+v", c.Contestant, figure, c)
				}
			}
		}
	})
	t.Run("beside one that is not there", func(t *testing.T) {
		d := startProgram(t, path, "echo-servers", "--dir", echoServers(t, "std"), "--baseline", "gnet")
		if _, stderr, code := d.end(); code != cli.ExitUsage || !strings.Contains(stderr, "--baseline gnet: write one of those in ") || !strings.HasSuffix(stderr, ": std\n") {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
}
