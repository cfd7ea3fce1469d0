package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// curl runs curl and returns what it printed. Without curl the test is skipped, or
// fails where CI is set.
func curl(t *testing.T, arguments ...string) string {
	t.Helper()
	program, err := exec.LookPath("curl")
	if err != nil {
		const text = "curl is not installed (Debian package curl)"
		if os.Getenv("CI") != "" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	// -q: nobody's .curlrc. The time is a bound on what must not take for ever.
	arguments = append([]string{"-q", "-sS", "--http1.1", "--noproxy", "*", "--max-time", "60"}, arguments...)
	command := exec.CommandContext(t.Context(), program, arguments...)
	var complaints strings.Builder
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		t.Fatalf("curl %s: %v\n%s", strings.Join(arguments, " "), err, complaints.String())
	}
	return string(out)
}

// TestCurlKeepAlive: all files over one connection, whole, and something that is not
// there among them.
func TestCurlKeepAlive(t *testing.T) {
	f := start(t, 64)
	dir := t.TempDir()
	arguments := []string{"-w", "%{http_code} %{num_connects}\n", "-o", os.DevNull, "http://" + f.address + "/none"}
	want := "404 1\n"
	for path := range f.sums {
		arguments = append(arguments, "-o", filepath.Join(dir, path+".got"), "http://"+f.address+path)
		want += "200 0\n"
	}
	if got := curl(t, arguments...); got != want {
		t.Errorf("codes and new connections:\n%swant:\n%s", got, want)
	}
	for path, wanted := range f.sums {
		b, err := os.ReadFile(filepath.Join(dir, path+".got"))
		if got := sum(b); err != nil || got != wanted {
			t.Errorf("%s: %v, %d bytes, SHA-256 %s, want %s", path, err, len(b), got, wanted)
		}
	}
}

// TestCurlHead: the length without the body, and the connection goes on.
func TestCurlHead(t *testing.T) {
	f := start(t, 64)
	for _, path := range []string{"/513.bin", "/5242877.bin"} {
		url := "http://" + f.address + path
		got := curl(t, "--head", "-w", "%{http_code} %{num_connects} %{size_download}\n", url, url)
		length := "Content-Length: " + strings.TrimSuffix(path[1:], ".bin") + "\r\n"
		if strings.Count(got, length) != 2 || !strings.Contains(got, "\n200 1 0\n") || !strings.Contains(got, "\n200 0 0\n") {
			t.Errorf("HEAD %s, twice:\n%s", path, got)
		}
	}
}

// TestCurlSlow: a reader who takes two seconds gets everything, and others are served
// meanwhile.
func TestCurlSlow(t *testing.T) {
	f := start(t, 64)
	t.Run("readers", func(t *testing.T) {
		for _, rate := range []string{"3M", "100M", "100M"} {
			t.Run(rate, func(t *testing.T) {
				t.Parallel()
				name := filepath.Join(t.TempDir(), "got")
				curl(t, "--limit-rate", rate, "-o", name, "http://"+f.address+"/5242877.bin")
				b, err := os.ReadFile(name)
				if got, want := sum(b), f.sums["/5242877.bin"]; err != nil || got != want {
					t.Errorf("%v, %d bytes, SHA-256 %s, want %s", err, len(b), got, want)
				}
			})
		}
	})
}
