package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/penstock/penstock/lane/internal/state"
)

// ErrElsewhere is the error of pins that belong to devices of another network namespace, which is there.
var ErrElsewhere = errors.New("it is of a device of another network namespace that is in use")

// dying is how long a network namespace may be there that nothing uses any more: the kernel takes it down later.
const dying = time.Second

// Step is called after each step of pinning, attaching, unpinning and detaching, if it is set: tests have the process die there.
var Step func()

// stepped is called after each of these.
func stepped() {
	if Step != nil {
		Step()
	}
}

// remove removes a pin.
func remove(path string) error {
	defer stepped()
	return os.Remove(path)
}

// tidy has the directory hold a whole set of pins of this network namespace, or none. Links of devices that are gone are removed. A set
// that a process has left incomplete, which died while it pinned or unpinned that, is removed, and its sessions end. Nothing is changed if a
// link is of another network namespace. The caller holds the lock of the directory.
func (p *Program) tidy() error {
	if p.pin == "" {
		return nil
	}
	links, err := filepath.Glob(p.links())
	if err != nil {
		return err
	}
	var gone []string
	for _, path := range links {
		is, err := p.isGone(path)
		if err != nil {
			return fmt.Errorf("pinned link %s: %w", path, err)
		}
		if is {
			gone = append(gone, path)
		}
	}
	for _, path := range gone {
		if err := remove(path); err != nil {
			return err
		}
	}
	whole, err := p.isWhole()
	if err != nil || whole {
		return err
	}
	if err := p.detach(); err != nil {
		return err
	}
	return p.Unpin()
}

// resize removes pinned maps of another size in which no session has a record, and returns those that are left: all, or none. A free record stays
// free while no process has the maps, which are closed if they are not returned. The caller holds the lock of the directory.
func (p *Program) resize(pinned map[string]*ebpf.Map, sessions uint32) (left map[string]*ebpf.Map, err error) {
	if pinned == nil || pinned["sessions"].MaxEntries() == sessions {
		return pinned, nil
	}
	empty, err := isEmpty(pinned["sessions"])
	if err == nil && !empty {
		return pinned, nil
	}
	for _, m := range pinned {
		err = errors.Join(err, m.Close())
	}
	if err == nil {
		err = p.detach()
	}
	if err == nil {
		err = p.Unpin()
	}
	return nil, err
}

// isEmpty reports whether all records of a map of sessions are free.
func isEmpty(sessions *ebpf.Map) (empty bool, err error) {
	look := Program{size: sessions.MaxEntries()}
	look.objects.Sessions = sessions
	if err := look.mapMemory(); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, look.unmap()) }()
	for slot := range look.size {
		if look.Session(slot).State() != state.Free {
			return false, nil
		}
	}
	return true, nil
}

// isGone reports whether the device of a pinned link is gone, with its network namespace or without. The error is [ErrElsewhere] if it is
// there, and not here.
func (p *Program) isGone(path string) (bool, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return false, err
	}
	defer l.Close()
	for deadline := time.Now().Add(dying); ; time.Sleep(10 * time.Millisecond) {
		info, err := l.Info()
		if err != nil {
			return false, err
		}
		at := info.TCX()
		switch {
		case at == nil:
			return false, errors.New("it is none of a device")
		case at.Ifindex == 0:
			return true, nil
		}
		here, err := isHere(info.ID, at)
		switch {
		case err != nil:
			return false, err
		case here && path != p.linkPath(int(at.Ifindex), nameOf(at)):
			return false, fmt.Errorf("it is of device %d", at.Ifindex)
		case here:
			return false, nil
		case !time.Now().Before(deadline):
			return false, ErrElsewhere
		}
	}
}

// isHere reports whether a link is attached in this network namespace. Its own account has the index of the device alone, which
// another namespace may have as well.
func isHere(id link.ID, at *link.TCXInfo) (bool, error) {
	attached, err := link.QueryPrograms(link.QueryOptions{Target: int(at.Ifindex), Attach: ebpf.AttachType(at.AttachType)})
	if errors.Is(err, syscall.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, a := range attached.Programs {
		if n, known := a.LinkID(); known && n == id {
			return true, nil
		}
	}
	return false, nil
}

// nameOf is the name of links with that attachment.
func nameOf(at *link.TCXInfo) string {
	if ebpf.AttachType(at.AttachType) == ebpf.AttachTCXEgress {
		return "egress"
	}
	return "ingress"
}

// isWhole reports whether all maps are pinned.
func (p *Program) isWhole() (bool, error) {
	for _, name := range mapNames {
		if _, err := os.Lstat(filepath.Join(p.pin, name)); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

// detach detaches pinned programs from their devices at once: without it that happens at some time after their links are unpinned.
func (p *Program) detach() error {
	links, err := filepath.Glob(p.links())
	for i := len(links) - 1; i >= 0 && err == nil; i-- { // the guard last
		var l link.Link
		if l, err = link.LoadPinnedLink(links[i], nil); err != nil {
			break
		}
		if e := l.Detach(); e != nil && !errors.Is(e, syscall.ENOLINK) && !errors.Is(e, link.ErrNotSupported) {
			err = e
		}
		err = errors.Join(err, l.Close())
		stepped()
	}
	if err != nil {
		return fmt.Errorf("detach pinned programs: %w", err)
	}
	return nil
}
