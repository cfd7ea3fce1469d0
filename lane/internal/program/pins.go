package program

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
)

// mapNames are the names of the maps that are pinned, in the order in which they are pinned. They are unpinned
// in reverse order, before all links. So a set that has the last map is complete, even if a process has died
// while it pinned or unpinned.
var mapNames = []string{"events", "flows", "sessions"}

// pinned returns the maps that are pinned in the directory, after tidy: all of them or none. Records of another
// version are an error, because their sessions cannot be read.
func (p *Program) pinned() (maps map[string]*ebpf.Map, err error) {
	if p.pin == "" {
		return nil, nil
	}
	maps = make(map[string]*ebpf.Map)
	defer func() {
		if err != nil {
			for _, m := range maps {
				m.Close()
			}
		}
	}()
	for _, name := range mapNames {
		m, err := ebpf.LoadPinnedMap(filepath.Join(p.pin, name), nil)
		if errors.Is(err, fs.ErrNotExist) && len(maps) == 0 {
			return nil, nil
		}
		if err != nil {
			return maps, fmt.Errorf("pinned map %s: %w", name, err)
		}
		maps[name] = m
	}
	info, err := maps["sessions"].Info()
	if err != nil {
		return maps, fmt.Errorf("pinned map sessions: %w", err)
	}
	if want := sessionsName(); int(info.ValueSize) != sessionSize || info.Name != want {
		return maps, fmt.Errorf("%s has sessions of another version: records of %d bytes, %q, want %d, %q", p.pin, info.ValueSize, info.Name, sessionSize, want)
	}
	return maps, nil
}

// sessionsName is the name of the map of sessions in the kernel. It has a hash of the layout of a record. So a
// record of another version is recognized even if it has the same size.
func sessionsName() string {
	h := fnv.New32a()
	var layout func(t reflect.Type, at uintptr)
	layout = func(t reflect.Type, at uintptr) {
		switch t.Kind() {
		case reflect.Struct:
			for f := range t.Fields() {
				fmt.Fprintln(h, f.Name)
				layout(f.Type, at+f.Offset)
			}
		case reflect.Array:
			fmt.Fprintln(h, t.Len())
			layout(t.Elem(), at)
		default:
			fmt.Fprintln(h, at, t.Kind())
		}
	}
	layout(reflect.TypeFor[laneSession](), 0)
	return fmt.Sprintf("lane_%08x", h.Sum32()) // 15 bytes at most (BPF_OBJ_NAME_LEN, include/uapi/linux/bpf.h)
}

// pinMaps pins new maps. After an error none of them is pinned.
func (p *Program) pinMaps() error {
	if p.pin == "" || p.Adopted {
		return nil
	}
	for i, m := range []*ebpf.Map{p.objects.Events, p.objects.Flows, p.objects.Sessions} {
		if err := m.Pin(filepath.Join(p.pin, mapNames[i])); err != nil {
			return errors.Join(err, p.Unpin())
		}
		stepped()
	}
	return nil
}

// links returns the paths of all pinned links.
func (p *Program) links() []string {
	list, _ := fs.Glob(os.DirFS(p.pin), "link-*") // the only error is a wrong pattern
	for i, name := range list {
		list[i] = filepath.Join(p.pin, name)
	}
	return list
}

// linkPath returns where the link of a device is pinned.
func (p *Program) linkPath(device int, name string) string {
	return filepath.Join(p.pin, "link-"+strconv.Itoa(device)+"-"+name)
}

// Unpin removes all pins, so that the programs and maps end when their descriptors are closed. It removes the
// maps before the links, see mapNames.
func (p *Program) Unpin() error {
	if p.pin == "" {
		return nil
	}
	var errs []error
	var all []string
	for _, name := range slices.Backward(mapNames) {
		all = append(all, filepath.Join(p.pin, name))
	}
	for _, path := range append(all, p.links()...) {
		if err := remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// IsPinned reports whether a link of the device is pinned here.
func (p *Program) IsPinned(device int) bool {
	if p.pin == "" {
		return false
	}
	_, err := os.Stat(p.linkPath(device, "ingress"))
	return err == nil
}

// ErrElsewhere means that the pins belong to devices of another network namespace that still exists.
var ErrElsewhere = errors.New("in another network namespace, in use")

// dying is how long a network namespace can exist after its last use. The kernel removes it with a delay.
const dying = time.Second

// Step is called after each step of pinning, attaching, unpinning and detaching, if it is not nil. Tests end
// the process in it.
var Step func()

// stepped calls Step.
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

// tidy makes sure that the directory has a complete set of pins of this network namespace, or no pins. It
// removes links of devices that are gone. It also removes an incomplete set, which a process leaves if it dies
// while it pins or unpins; the sessions of that set end. If a link belongs to another network namespace, tidy
// changes nothing and returns an error. The caller holds the lock of the directory.
func (p *Program) tidy() error {
	if p.pin == "" {
		return nil
	}
	var gone []string
	for _, path := range p.links() {
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

// resize removes pinned maps of another size if they have no record of a session. It returns the maps that are
// left, all or none, and closes the others. A free record stays free as long as no process has the maps. The
// caller holds the lock of the directory.
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

// isGone reports whether the device of a pinned link is gone, alone or with its network namespace. The error is
// [ErrElsewhere] if the device exists in another network namespace.
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
			return false, errors.New("it is not attached to a device")
		case at.Ifindex == 0:
			return true, nil
		}
		here, err := isHere(info.ID, at)
		switch {
		case err != nil:
			return false, err
		case here && path != p.linkPath(int(at.Ifindex), nameOf(at)):
			return false, fmt.Errorf("it is attached to device %d", at.Ifindex)
		case here:
			return false, nil
		case !time.Now().Before(deadline):
			return false, ErrElsewhere
		}
	}
}

// isHere reports whether a link is attached in this network namespace. The information of the link has only the
// index of its device, and a device of another namespace can have the same index.
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

// nameOf returns the name that linkPath takes for an attachment.
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

// detach detaches pinned programs from their devices at once. Otherwise the kernel does it some time after
// their links are unpinned.
func (p *Program) detach() error {
	var err error
	links := p.links()
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

// A pinning is one file of the set, and the object that belongs there.
type pinning struct {
	path string
	m    *ebpf.Map // borrowed; nil: it is a link
	link link.Link // borrowed from the owner of the links
}

// pinnings returns the files of the set, in the order in which they are pinned.
func (p *Program) pinnings() []pinning {
	var all []pinning
	for i, m := range []*ebpf.Map{p.objects.Events, p.objects.Flows, p.objects.Sessions} {
		all = append(all, pinning{path: filepath.Join(p.pin, mapNames[i]), m: m})
	}
	return append(all, p.attached...)
}

// Repin pins the set again if all its files were removed and nothing else is in the directory, and reports
// whether it did. The error wraps [fs.ErrNotExist] if only a part of the set is missing, and [fs.ErrExist] if a
// file does not belong to the set. Nothing is changed then. The caller holds the lock of the directory, and
// keeps all attached links open.
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
			return false, fmt.Errorf("%s belongs to another lane: %w", a.path, fs.ErrExist)
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

// pinAgain pins a set into an empty directory. After an error nothing is pinned.
func (p *Program) pinAgain(all []pinning) (again bool, err error) {
	list, err := os.ReadDir(p.pin)
	if err != nil {
		return false, err
	}
	if len(list) > 0 {
		return false, fmt.Errorf("another program pinned %s: %w", filepath.Join(p.pin, list[0].Name()), fs.ErrExist)
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

// isThere reports whether the file at the path is a pin of this very object.
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

// isSame reports whether two objects have the same ID.
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

// pin pins the object through a duplicate descriptor, because a Go object that was pinned before believes that
// it still is.
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
