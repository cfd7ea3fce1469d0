package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestDirectoriesOfSockets: a directory that is a link, that others may write to, or that is another user's has no
// private socket.
func TestDirectoriesOfSockets(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	env := func(path string) func(string) (string, bool) {
		return func(name string) (string, bool) { return path, name == "RUNTIME_DIRECTORY" }
	}
	made := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own, link, file := made("own", 0o755), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := errors.Join(os.Symlink(own, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	bad := []string{link, file, made("group", 0o770), made("all", 0o707), made("sticky", 0o777|os.ModeSticky)}
	if os.Geteuid() == 0 {
		other := made("other", 0o700)
		if err := os.Chown(other, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		bad = append(bad, other)
	}
	for _, path := range bad {
		if bind, err := privateAddress(env(path), "/etc/p.yaml"); !errors.Is(err, errDirectory) {
			t.Errorf("%s: %s, %v", path, bind, err)
		}
	}
	if _, err := privateAddress(env(own), "/etc/p.yaml"); err != nil {
		t.Error(err)
	}
	if _, err := privateAddress(env(filepath.Join(dir, "none")), "/etc/p.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// TestOwnersOfFoundSockets: a user whom root has given a directory may serve there, and nobody whose directory is
// anywhere else.
func TestOwnersOfFoundSockets(t *testing.T) {
	t.Parallel()

	if os.Geteuid() != 0 {
		t.Skip("only root may give a directory away")
	}
	dir := t.TempDir()
	for name, x := range map[string]struct {
		parent, mode os.FileMode
		of           int
		want         uint32
	}{
		"a service":       {0o755, 0o750, 0, 12345},
		"open to others":  {0o755, 0o770, 0, 0},
		"below others":    {0o777, 0o750, 0, 0},
		"below another's": {0o755, 0o750, 12346, 0},
	} {
		parent := filepath.Join(dir, name)
		service := filepath.Join(parent, "penstock")
		err := errors.Join(os.MkdirAll(service, 0o700), os.Chown(service, 12345, 12345), os.Chown(parent, x.of, 0), os.Chmod(service, x.mode), os.Chmod(parent, x.parent))
		if err != nil {
			t.Fatal(err)
		}
		if as := privateCredentials("unix:" + filepath.Join(service, "a-01234567.sock")); !as.Known || as.Owner != x.want {
			t.Errorf("%s: %+v", name, as)
		}
	}
}
