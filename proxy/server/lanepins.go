package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/penstock/penstock/proxy/internal/file"
)

// bpfMagic is the type of BPF file systems (statfs(2), BPF_FS_MAGIC).
const bpfMagic = 0xcafe4a11

// bpfMount is where systems have the BPF file system.
const bpfMount = "/sys/fs/bpf"

// CheckPins returns why a directory cannot hold the pins of the lane: it, or the one that it is to be made in, is not of a BPF
// file system, or other users may put pins there, by which they would lead the sessions of this process. "" is good.
func CheckPins(dir string) error {
	if dir == "" {
		return nil
	}
	at := dir
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		at = filepath.Dir(dir)
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(at, &st); err != nil {
		return fmt.Errorf("lane.pins: %w", &fs.PathError{Op: "statfs", Path: at, Err: err})
	}
	if uint32(st.Type) != bpfMagic {
		hint := ", or write a directory in " + bpfMount
		if at == bpfMount || strings.HasPrefix(at, bpfMount+"/") {
			at, hint = bpfMount, ""
		}
		return fmt.Errorf("lane.pins: %s is of no BPF file system: mount one there (mount -t bpf -o mode=700 bpf %[1]s)%s", at, hint)
	}
	return ownPins(dir)
}

// ownPins returns why other users may write in a directory of pins, or have another one in its place.
func ownPins(dir string) error {
	p, err := file.Beside(dir)
	if err != nil {
		return fmt.Errorf("lane.pins: %w", err)
	}
	defer p.Close()
	if err := errors.Join(p.Fixed(), p.Safe()); err != nil {
		return fmt.Errorf("lane.pins: %w", err)
	}
	is, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lane.pins: %w", err)
	}
	of := is.Sys().(*syscall.Stat_t).Uid
	switch {
	case !is.IsDir():
		return fmt.Errorf("lane.pins: %s is no directory: write one that is no link", dir)
	case of != 0 && int(of) != os.Geteuid():
		return fmt.Errorf("lane.pins: %s is a directory of uid %d: chown it to uid %d, or write another one", dir, of, os.Geteuid())
	case is.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("lane.pins: other users may write in %s (mode %04o): chmod 700 %[1]s, or if the file system is mounted there, mount -o remount,mode=700 %[1]s", dir, is.Mode().Perm())
	}
	return nil
}

// pinsEvery is how many looks of the monitor pass between two at the pins.
const pinsEvery = 5

// A pinsWatch sees to the pins of the lane.
type pinsWatch struct {
	looks int                    // of the monitor
	wrong atomic.Pointer[string] // why sessions in the lane would not survive the process; nil: they would, or there are no pins
}

// lookAtPins has pins that were removed be made anew, or notes why that cannot be, once. It is for the goroutine of the monitor.
func (s *Server) lookAtPins() {
	w := &s.pins
	if w.looks++; w.looks%pinsEvery != 0 {
		return
	}
	now := s.lane.Load()
	if now == nil || now.lane == nil || now.cfg.Pins == "" {
		return
	}
	again, err := now.lane.Repin()
	last := w.wrong.Load()
	switch {
	case errors.Is(err, net.ErrClosed):
	case err != nil:
		if text := err.Error(); last == nil || *last != text {
			w.wrong.Store(&text)
			s.log.Warn("sessions in the lane do not survive the process: pins are missing", "pins", now.cfg.Pins, "error", err)
		}
	case again:
		w.wrong.Store(nil)
		s.log.Warn("the pins of the lane were removed, and are pinned again", "pins", now.cfg.Pins)
	case last != nil:
		w.wrong.Store(nil)
		s.log.Info("the pins of the lane are there again", "pins", now.cfg.Pins)
	}
}

// makePins makes the directory of pins if it is not there, for this user alone.
func makePins(dir string) error {
	if dir == "" {
		return nil
	}
	if err := CheckPins(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("lane.pins: %w", err)
	}
	return nil
}
