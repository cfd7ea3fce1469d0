package contestant_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/bench/contestant"
)

// TestAdminSocket: a path that is too long for a unix socket is replaced, and the other directory
// is removed.
func TestAdminSocket(t *testing.T) {
	dir := t.TempDir()
	path, remove, err := contestant.AdminSocket("/run/penstock")
	if remove(); err != nil || path != "/run/penstock/admin" {
		t.Errorf("%s, %v", path, err)
	}
	path, remove, err = contestant.AdminSocket(filepath.Join(dir, strings.Repeat("x", 90)))
	if err != nil || len(path) > 90 || strings.HasPrefix(path, dir) {
		t.Fatalf("%s, %v", path, err)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		t.Error(err)
	}
	remove()
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("the directory still exists: %v", err)
	}
}
