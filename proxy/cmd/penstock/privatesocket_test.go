package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestPrivateDirectoryWithoutVariables: where no variable names a directory, the last one is made for this user
// alone, or used if it is this user's. Another file in its place is not, nor a link, which somebody else may
// turn.
func TestPrivateDirectoryWithoutVariables(t *testing.T) {
	t.Parallel()

	env := func(string) (string, bool) { return "", false }
	dir := filepath.Join(t.TempDir(), "penstock")
	for range 2 {
		if got, err := privateDirectory(env, dir); got != dir || err != nil {
			t.Fatal(got, err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	link, file := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.Symlink(dir, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	others := []string{link, file, filepath.Join(dir, "not", "there")}
	if os.Geteuid() != 0 {
		others = append(others, "/")
	}
	for _, last := range others {
		if got, err := privateDirectory(env, last); !errors.Is(err, errNoDirectory) {
			t.Errorf("%s: %q, %v", last, got, err)
		}
	}
}
