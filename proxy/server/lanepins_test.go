package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
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
