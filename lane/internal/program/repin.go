package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/penstock/penstock/internal/sys"
)

// A pinning is one file of the set, and the object that belongs there.
type pinning struct {
	path string
	m    *ebpf.Map // borrowed; nil: it is a link
	link link.Link // borrowed of the owner of the links
}

// pinnings are those of the set, in the order in which they are pinned.
func (p *Program) pinnings() []pinning {
	var all []pinning
	for i, m := range []*ebpf.Map{p.objects.Events, p.objects.Flows, p.objects.Sessions} {
		all = append(all, pinning{path: filepath.Join(p.pin, mapNames[i]), m: m})
	}
	return append(all, p.attached...)
}

// Repin pins the set again if all of it was removed, and nothing else is in the directory, and reports whether it has. The error wraps
// [fs.ErrNotExist] if a part of the set is missing, and [fs.ErrExist] if a file is none of this set: nothing is changed then. The caller holds the lock of the
// directory, and has all links that were attached open.
func (p *Program) Repin() (again bool, err error) {
	if p.pin == "" {
		return false, nil
	}
	all := p.pinnings()
	var missing []string
	for _, a := range all {
		switch is, err := a.isThere(); {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, filepath.Base(a.path))
		case err != nil:
			return false, fmt.Errorf("pin %s: %w", a.path, err)
		case !is:
			return false, fmt.Errorf("%s is of another lane: %w", a.path, fs.ErrExist)
		}
	}
	switch len(missing) {
	case 0:
		return false, nil
	case len(all):
		return p.pinAgain(all)
	}
	return false, fmt.Errorf("%d of %d files are missing in %s (%s): %w", len(missing), len(all), p.pin, strings.Join(missing, ", "), fs.ErrNotExist)
}

// pinAgain pins a set into a directory that is empty: all of it, or after an error nothing.
func (p *Program) pinAgain(all []pinning) (again bool, err error) {
	list, err := os.ReadDir(p.pin)
	if err != nil {
		return false, err
	}
	if len(list) > 0 {
		return false, fmt.Errorf("%s was pinned by another: %w", filepath.Join(p.pin, list[0].Name()), fs.ErrExist)
	}
	for i, a := range all {
		if err := a.pin(); err != nil {
			err = fmt.Errorf("pin %s again: %w", a.path, err)
			for _, done := range slices.Backward(all[:i]) {
				err = errors.Join(err, remove(done.path))
			}
			return false, err
		}
		stepped()
	}
	return true, nil
}

// isThere reports whether the object is pinned at its path, and not another one.
func (a *pinning) isThere() (bool, error) {
	if a.m != nil {
		there, err := ebpf.LoadPinnedMap(a.path, nil)
		if err != nil {
			return false, err
		}
		defer there.Close()
		return isSame(there.Info, a.m.Info, func(i *ebpf.MapInfo) (uint32, bool) { id, known := i.ID(); return uint32(id), known })
	}
	there, err := link.LoadPinnedLink(a.path, nil)
	if err != nil {
		return false, err
	}
	defer there.Close()
	return isSame(there.Info, a.link.Info, func(i *link.Info) (uint32, bool) { return uint32(i.ID), true })
}

// isSame reports whether two objects are the same one.
func isSame[I any](there, ours func() (*I, error), id func(*I) (uint32, bool)) (bool, error) {
	x, err := there()
	if err != nil {
		return false, err
	}
	y, err := ours()
	if err != nil {
		return false, err
	}
	is, known := id(x)
	want, alsoKnown := id(y)
	if !known || !alsoKnown {
		return false, errors.New("the kernel reports no ID")
	}
	return is == want, nil
}

// pin pins the object, by a second descriptor: one that was pinned there before takes itself for pinned still.
func (a *pinning) pin() error {
	if a.m != nil {
		second, err := a.m.Clone()
		if err != nil {
			return err
		}
		return errors.Join(second.Pin(a.path), second.Close())
	}
	of, has := a.link.(interface{ FD() int })
	if !has {
		return errors.ErrUnsupported
	}
	fd, err := sys.Dup(of.FD())
	if err != nil {
		return err
	}
	second, err := link.NewFromFD(fd)
	if err != nil {
		return err
	}
	return errors.Join(second.Pin(a.path), second.Close())
}
