package lanes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPinsOfOthers: CheckPins refuses a directory of another user, a directory in which others may write, and a
// directory behind a link.
func TestPinsOfOthers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have directories of another user")
	}
	for name, make := range map[string]func(dir string) error{
		"it belongs to uid 65534":            func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534)) },
		"other users may write":              func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770)) },
		"is not a directory":                 func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		"its directory belongs to uid 65534": func(dir string) error { return os.Chown(filepath.Dir(dir), 65534, 65534) },
		"every user may write":               func(dir string) error { return os.Chmod(filepath.Dir(dir), 0o777) },
		"":                                   func(dir string) error { return os.Mkdir(dir, 0o700) },
	} {
		dir := filepath.Join(t.TempDir(), "pins")
		if err := make(dir); err != nil {
			t.Fatal(err)
		}
		err := ownPins(dir)
		if name == "" && err != nil || name != "" && (err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(name, "it "))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPinsElsewhere: the error for a directory that is on another file system has a mount to which no other user has access.
func TestPinsElsewhere(t *testing.T) {
	t.Parallel()
	if err := CheckPins(filepath.Join(t.TempDir(), "pins")); err == nil || !strings.Contains(err.Error(), "mount -t bpf -o mode=700 bpf ") {
		t.Errorf("%v", err)
	}
}
