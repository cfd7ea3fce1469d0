package lanes

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/penstock/penstock/proxy/internal/file"
)

// devices returns the loopback and the Ethernet devices that are up and have an address.
func devices() (names []string, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	for _, d := range all {
		if d.Flags&net.FlagUp == 0 || d.Flags&net.FlagLoopback == 0 && len(d.HardwareAddr) != 6 {
			continue
		}
		if addresses, err := d.Addrs(); err == nil && len(addresses) > 0 {
			names = append(names, d.Name)
		}
	}
	if len(names) == 0 {
		err = errors.New("no device is up and has an address")
	}
	return names, err
}

// CheckDevices returns why the lane cannot use the devices of lane.devices: this network namespace does not
// have them, or they are neither Ethernet nor the loopback.
func CheckDevices(names []string) error {
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("lane.devices: %w", err)
	}
	var missing, others []string
	for _, name := range names {
		switch i := slices.IndexFunc(all, func(d net.Interface) bool { return d.Name == name }); {
		case i < 0:
			missing = append(missing, name)
		case all[i].Flags&net.FlagLoopback == 0 && len(all[i].HardwareAddr) != 6:
			others = append(others, name)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("lane.devices: there is no network device %s here", strings.Join(missing, ", "))
	case len(others) > 0:
		return fmt.Errorf("lane.devices: these devices are neither Ethernet nor the loopback: %s", strings.Join(others, ", "))
	}
	return nil
}

// bpfMagic is the type of BPF file systems (statfs(2), BPF_FS_MAGIC).
const bpfMagic = 0xcafe4a11

// bpfMount is where most systems mount the BPF file system.
const bpfMount = "/sys/fs/bpf"

// CheckPins returns why a directory cannot hold the pins of the lane. The directory must be on a BPF file
// system. If it does not exist yet, its parent must be on one. Other users must not be able to put pins there,
// because such pins could redirect the sessions of this process. CheckPins accepts "".
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
		return fmt.Errorf("lane.pins: %s is not on a BPF file system: mount a BPF file system there (mount -t bpf -o mode=700 bpf %[1]s)%s", at, hint)
	}
	return ownPins(dir)
}

// ownPins returns an error if other users can write in a directory of pins, or can put another directory in its
// place.
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
		return fmt.Errorf("lane.pins: %s is not a directory, or is a link: write the path of a directory", dir)
	case of != 0 && int(of) != os.Geteuid():
		return fmt.Errorf("lane.pins: %s belongs to uid %d: chown it to uid %d, or write another directory", dir, of, os.Geteuid())
	case is.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("lane.pins: other users may write in %s (mode %04o): chmod 700 %[1]s, or if the file system is mounted there, mount -o remount,mode=700 %[1]s", dir, is.Mode().Perm())
	}
	return nil
}

// makePins makes the directory of pins if it does not exist. Only this user has access to it.
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
