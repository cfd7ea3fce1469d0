package lane_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane"
)

// crashed leaves the pins of a lane as a process does that is killed.
func crashed(t *testing.T, dir string, devices ...string) {
	t.Helper()
	l, err := lane.Open(lane.Config{Devices: devices, Pin: dir, Sessions: 32})
	if err != nil {
		t.Fatal(err)
	}
	kept := dir + "-kept"
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	move(t, dir, kept)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	move(t, kept, dir)
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
}

// move moves all files of a directory.
func move(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range names(t, from) {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// unpin removes a pin, and detaches the program of one of a link, which happens at some time after that otherwise.
func unpin(t *testing.T, path string) {
	t.Helper()
	var err error
	if strings.HasPrefix(filepath.Base(path), "link-") {
		var l link.Link
		if l, err = link.LoadPinnedLink(path, nil); err != nil {
			t.Fatal(err)
		}
		err = errors.Join(l.Detach(), l.Close())
	}
	if err = errors.Join(err, os.Remove(path)); err != nil {
		t.Fatal(err)
	}
}

// names returns the files of a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		all = append(all, e.Name())
	}
	return all
}

// wholePins are those of a lane at these devices.
func wholePins(devices ...int) (all []string) {
	all = []string{"events", "flows", "sessions"}
	for _, d := range devices {
		all = append(all, fmt.Sprintf("link-%d-egress", d), fmt.Sprintf("link-%d-ingress", d))
	}
	slices.Sort(all)
	return all
}

// serves opens the pins, wants sessions to leave user space, and closes the lane.
func serves(t *testing.T, dir string, pins []string, devices ...string) {
	t.Helper()
	l, err := lane.Open(lane.Config{Devices: devices, Pin: dir, Sessions: 16})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, pins) {
		t.Errorf("pinned: %v, want %v", got, pins)
	}
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("pinned after Close: %v", left)
	}
}

// TestPinnedDeviceAnew: the pinned link of a device that was made anew with the same index is replaced.
func TestPinnedDeviceAnew(t *testing.T) {
	t.Parallel()

	permitted(t)
	if !aloneWithMounts(t) {
		return
	}
	dir, here := filesystem(t), netns.Here(t)
	add := func() { here.IP("link add here index 100 type veth peer name there index 101") }
	add()
	crashed(t, dir, "lo", "here")
	here.IP("link del here")
	add()
	serves(t, dir, wholePins(1, 100), "lo", "here")
}

// TestPinnedElsewhere: pins of another network namespace are refused, and stay, as long as that is in use; then they are replaced.
func TestPinnedElsewhere(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	p := startProxyIn(t, "127.0.0.1:1", dir, syscall.CLONE_NEWNET)
	inUse, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Close()
	p.kill()
	for _, part := range [][]string{nil, {"sessions"}} {
		for _, name := range part {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		before := names(t, dir)
		l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, lane.ErrBusy) || !strings.Contains(err.Error(), "network namespace") {
			t.Errorf("pins of a network namespace that is in use: %v", err)
		}
		if got := names(t, dir); !slices.Equal(got, before) {
			t.Errorf("pinned: %v, want %v", got, before)
		}
	}
	if err := inUse.Close(); err != nil {
		t.Fatal(err)
	}
	var l *lane.Lane
	until(t, "the kernel has taken the network namespace down", func() bool {
		l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
		return !errors.Is(err, lane.ErrBusy)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p = startProxyIn(t, "127.0.0.1:1", dir, syscall.CLONE_NEWNET)
	p.kill()
	until(t, "the pins are replaced", func() bool {
		l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
		return !errors.Is(err, lane.ErrBusy)
	})
	if err != nil {
		t.Fatal(err)
	}
	joined(t, l, "tcp", "127.0.0.1:0").talk(t)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestPinnedInPart: a set of pins of which any part is missing is made anew, and its links with it.
func TestPinnedInPart(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	for _, kept := range [][]string{
		{"sessions"},
		{"flows", "sessions"},
		{"events", "flows"},
		{"events", "flows", "link-1-egress", "link-1-ingress"},
		{"events", "link-1-egress", "link-1-ingress"},
		{"link-1-egress", "link-1-ingress"},
		{"link-1-ingress"},
		{"flows", "sessions", "link-1-egress"},
		{"events", "flows", "sessions"},
		{"events", "flows", "sessions", "link-1-egress"},
		{"events", "flows", "sessions", "link-1-ingress"},
	} {
		crashed(t, dir, "lo")
		for _, name := range names(t, dir) {
			if !slices.Contains(kept, name) {
				unpin(t, filepath.Join(dir, name))
			}
		}
		serves(t, dir, wholePins(1), "lo")
	}
}

// TestPinnedEmpty: a pinned table of another size is made anew with the size that is asked for if it has no session, and keeps its own if it has one.
func TestPinnedEmpty(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	for _, sessions := range []int{16, 64} {
		crashed(t, dir, "lo")
		l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: sessions})
		if err != nil {
			t.Fatal(err)
		}
		if l.Size() != sessions {
			t.Errorf("room for %d sessions, want %d", l.Size(), sessions)
		}
		if got := names(t, dir); !slices.Equal(got, wholePins(1)) {
			t.Errorf("pinned: %v", got)
		}
		p := joined(t, l, "tcp", "127.0.0.1:0")
		p.talk(t)
		if err := l.Leave(); err != nil {
			t.Fatal(err)
		}
		l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 32})
		if err != nil {
			t.Fatal(err)
		}
		if st := l.Stats(); l.Size() != sessions || st.Adopted != 1 {
			t.Errorf("room for %d sessions, want %d with the session, of which %d are adopted", l.Size(), sessions, st.Adopted)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPinnedTwice: of lanes that are opened with the same pins at the same moment exactly one is, and the others are busy, whether there are pins already or not.
func TestPinnedTwice(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	const rivals = 4
	for n, began := 0, time.Now(); n < 3 || n < 30 && time.Since(began) < 3*time.Second; n++ {
		if n%2 == 1 {
			crashed(t, dir, "lo")
		}
		lanes, start := make(chan *lane.Lane, rivals), make(chan struct{})
		for range rivals {
			go func() {
				<-start
				l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 16})
				if err != nil && !errors.Is(err, lane.ErrBusy) {
					t.Error(err)
				}
				lanes <- l
			}()
		}
		close(start)
		var opened []*lane.Lane
		for range rivals {
			if l := <-lanes; l != nil {
				opened = append(opened, l)
			}
		}
		if len(opened) != 1 {
			t.Errorf("round %d: %d lanes are open", n, len(opened))
		} else if got := names(t, dir); !slices.Equal(got, wholePins(1)) {
			t.Errorf("round %d: pinned: %v", n, got)
		}
		for _, l := range opened {
			joined(t, l, "tcp", "127.0.0.1:0").talk(t)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
