package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// bpfMagic is the type of BPF file systems (statfs(2), BPF_FS_MAGIC).
const bpfMagic = 0xcafe4a11

// bpfMount is where systems have the BPF file system.
const bpfMount = "/sys/fs/bpf"

// CheckPins returns why a directory cannot hold the pins of the lane: it, or the one that it is to be made in, is not of a BPF
// file system. "" is good.
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
		return fmt.Errorf("lane.pins: %s is of no BPF file system: mount one there (mount -t bpf bpf %[1]s)%s", at, hint)
	}
	return nil
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
