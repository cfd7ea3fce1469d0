package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/server"
)

// TestLanePinsRemoved: pins of which a part was removed are a problem of the status, and are logged once; once all are removed they are pinned again.
func TestLanePinsRemoved(t *testing.T) {
	t.Parallel()

	pins := pinned(t)
	if pins == "" {
		return
	}
	r := start(t, pinnedConfig(sockets.Server(t, sockets.Echo), "lane: require", "pins: "+pins))
	r.leaves(t, client(t, r.At("l")))
	list, err := os.ReadDir(pins)
	if err != nil {
		t.Fatal(err)
	}
	remove := func(name string) {
		t.Helper()
		if err := os.Remove(filepath.Join(pins, name)); err != nil {
			t.Fatal(err)
		}
	}
	problem := func() bool { return strings.Contains(r.Status().Lane.PinsProblem, "1 of 5 files are missing") }
	remove("sessions")
	r.Until("a part is missing", problem)
	r.Logs("pins are missing", "1 of 5 files")
	for _, e := range list {
		if e.Name() != "sessions" {
			remove(e.Name())
		}
	}
	r.Until("all is pinned again", func() bool { return r.Status().Lane.PinsProblem == "" })
	r.Logs("are pinned again", pins)
	if now, err := os.ReadDir(pins); err != nil || len(now) != len(list) {
		t.Errorf("%v, %v", now, err)
	}
}

// TestPinsOfOthers: pins are not in a directory of another user, or in one that others may write in, or behind a link.
func TestPinsOfOthers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have directories of another user")
	}
	for name, make := range map[string]func(dir string) error{
		"it is a directory of uid 65534": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534)) },
		"other users may write":          func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770)) },
		"is no directory":                func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		"its directory is of uid 65534":  func(dir string) error { return os.Chown(filepath.Dir(dir), 65534, 65534) },
		"every user may write":           func(dir string) error { return os.Chmod(filepath.Dir(dir), 0o777) },
		"":                               func(dir string) error { return os.Mkdir(dir, 0o700) },
	} {
		dir := filepath.Join(t.TempDir(), "pins")
		if err := make(dir); err != nil {
			t.Fatal(err)
		}
		err := server.OwnPins(dir)
		if name == "" && err != nil || name != "" && (err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(name, "it "))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
