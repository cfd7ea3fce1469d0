package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRunningWhateverTheName: processes are found in a directory with a [ in its name.
func TestRunningWhateverTheName(t *testing.T) {
	t.Parallel()
	top, err := os.MkdirTemp("", "p") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	dir := filepath.Join(top, "[x")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "penstock-12345678.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	list := running(func(name string) (string, bool) { return dir, name == "RUNTIME_DIRECTORY" })
	if !slices.Contains(list, "unix:"+socket) {
		t.Errorf("%q", list)
	}
}
