package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestListensWhereNothingIsSeen: a socket in a directory that this user may not look into is none that listens. Root
// looks into all.
func TestListensWhereNothingIsSeen(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	socket := filepath.Join(dir, "a.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !listens(socket) || listens(filepath.Join(dir, "b.sock")) {
		t.Error("the socket that is there does not count, or the other one does")
	}
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if seen := listens(filepath.Join(dir, "b.sock")); seen {
		t.Error("a socket that nobody has seen listens")
	}
}
