package admin_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestModeChanges: the mode changes with the address, also to the default mode. The socket stays,
// and an aborted change has no effect.
func TestModeChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	r := newRig(t, "unix:"+path+"?mode=0600")
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	has := func(mode os.FileMode) {
		t.Helper()
		now, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, now) || now.Mode().Perm() != mode {
			t.Errorf("%v, %v: %v", now, err, now.Mode())
		}
	}
	has(0o600)
	m, err := r.Prepare(t.Context(), access("unix:"+path))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Abort(); err != nil {
		t.Error(err)
	}
	has(0o600)
	r.move(t, "unix:"+path)
	has(0o660)
	r.move(t, "unix:"+path+"?mode=0666")
	has(0o666)
	r.move(t, "unix:"+path+"?mode=0666")
	has(0o666)
	r.move(t, "unix:"+path)
	has(0o660)
	if _, err := r.Status(t.Context()); err != nil {
		t.Error(err)
	}
}
