package lane_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/lane"
)

// removed removes files of a directory, all of them if none is named.
func removed(t *testing.T, dir string, files ...string) {
	t.Helper()
	if len(files) == 0 {
		files = names(t, dir)
	}
	for _, name := range files {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRepin: a set of pins that was removed is pinned again, as often as that happens, also by a process that has adopted it. The next lane adopts it.
func TestRepin(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	var p pair
	for round := range 2 {
		l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 16})
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			p = joined(t, l, "tcp", "127.0.0.1:0")
			p.talk(t)
			until(t, "the session has left", p.Left)
		} else if n := l.Stats().Adopted; n != 1 {
			t.Errorf("%d sessions are adopted", n)
		}
		for range 2 {
			if again, err := l.Repin(); again || err != nil {
				t.Errorf("all is there: %v, %v", again, err)
			}
			removed(t, dir)
			if again, err := l.Repin(); !again || err != nil {
				t.Errorf("all was removed: %v, %v", again, err)
			}
			if got := names(t, dir); !slices.Equal(got, wholePins(1)) {
				t.Errorf("pinned: %v", got)
			}
		}
		p.exchange(t, []byte("on"), p.client, p.server)
		if err := l.Leave(); err != nil {
			t.Fatal(err)
		}
		if again, err := l.Repin(); again || !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Leave: %v, %v", again, err)
		}
		p.exchange(t, []byte("on"), p.client, p.server)
	}
	serves(t, dir, wholePins(1), "lo")
}

// foreign pins a map of another owner.
func foreign(t *testing.T, path string) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		err = errors.Join(m.Pin(path), m.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRepinNot: pins of which a part is left, those of another owner, and another directory are reported, and stay as they are.
func TestRepinNot(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refused := func(what string, want error) {
		t.Helper()
		before := names(t, dir)
		if again, err := l.Repin(); again || !errors.Is(err, want) {
			t.Errorf("%s: %v, %v", what, again, err)
		}
		if got := names(t, dir); !slices.Equal(got, before) {
			t.Errorf("%s: pinned: %v, want %v", what, got, before)
		}
	}
	pinsAgain := func() {
		t.Helper()
		removed(t, dir)
		if again, err := l.Repin(); !again || err != nil {
			t.Errorf("%v, %v", again, err)
		}
	}
	for _, name := range wholePins(1) {
		removed(t, dir, name)
		refused("without "+name, fs.ErrNotExist)
		pinsAgain()
	}
	for _, name := range []string{"events", "sessions"} {
		removed(t, dir, name)
		foreign(t, filepath.Join(dir, name))
		refused("another "+name, fs.ErrExist)
		removed(t, dir)
		foreign(t, filepath.Join(dir, name))
		refused("another "+name+" alone", fs.ErrExist)
		pinsAgain()
	}
	removed(t, dir)
	foreign(t, filepath.Join(dir, "link-7-ingress"))
	refused("a file of another set", fs.ErrExist)
	removed(t, dir)
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	refused("the directory made anew", fs.ErrNotExist)
}
