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

	"github.com/cilium/ebpf"
)

// mapNames are the maps that are pinned, under their names, in this order, and unpinned before all links in the reverse one: a set that has the last one is
// whole, and no death leaves another set that looks so.
var mapNames = []string{"events", "flows", "sessions"}

// pinned returns the maps that are pinned in the directory: none, or all of them, once it is tidy. Records of another version are an
// error: the sessions in them are not known.
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

// sessionsName is the kernel's name of the map of sessions. It stands for what a record has where, so that a record with the same size
// and other members is known to be of another version.
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

// pinMaps pins new maps: all of them, or after an error none.
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

// links is the pattern of all that linkPath returns.
func (p *Program) links() string { return filepath.Join(p.pin, "link-*") }

// linkPath is where the link of a device is pinned.
func (p *Program) linkPath(device int, name string) string {
	return filepath.Join(p.pin, "link-"+strconv.Itoa(device)+"-"+name)
}

// Unpin removes all that is pinned, so that it ends with its descriptors: the maps before the links, as mapNames has it.
func (p *Program) Unpin() error {
	if p.pin == "" {
		return nil
	}
	links, err := filepath.Glob(p.links())
	errs := []error{err}
	var all []string
	for _, name := range slices.Backward(mapNames) {
		all = append(all, filepath.Join(p.pin, name))
	}
	for _, path := range append(all, links...) {
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
