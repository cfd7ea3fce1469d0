// Package program has the BPF programs of the lane, and the memory that they share with user space.
//
// The programs are in bpf/lane.c. A map gets its size when it is made, and keeps it.
package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang -target bpfel -cflags "-O2 -Wall -Wextra -Wno-unused-parameter -mcpu=v3" -type tuple -type place -type half -type session -type event -type why lane bpf/lane.c

// A Program is the loaded programs and their maps. Its methods may be called concurrently.
type Program struct {
	objects laneObjects
	memory  []byte // the mapping of the map sessions
	ports   ports
	size    uint32
	pin     string // a directory, or ""

	attached []pinning // links of Attach that are pinned

	strangers map[uint32]bool // slots to which the tuple of another record led when the maps were opened

	// Adopted reports whether another process had pinned the maps before Load.
	Adopted bool
}

// ipv6Flag is BPF_F_IPV6 of bpf_l4_csum_replace (include/uapi/linux/bpf.h, Linux 6.16).
const ipv6Flag = 1 << 7

// Load loads the programs, with room for that many sessions. If pin is not "", it is a directory of a BPF file
// system. Load then uses the maps that are pinned there, with their sessions and their size, or else makes new
// maps and pins them there. Before that it removes an incomplete set of pins, and its sessions end. It also
// removes maps of another size that have no record of a session.
//
// The error wraps [ErrElsewhere] if the pins belong to another network namespace that is in use. They stay as
// they are. The caller must call Close.
func Load(sessions uint32, pin string) (p *Program, err error) {
	spec, err := loadLane()
	if err != nil {
		return nil, fmt.Errorf("programs: %w", err)
	}
	known, err := knowsFlag(spec)
	if err != nil {
		return nil, err
	}
	if known {
		if err := spec.Variables["v6_flags"].Set(uint64(ipv6Flag)); err != nil {
			return nil, fmt.Errorf("constant v6_flags: %w", err)
		}
	}
	spec.Maps["sessions"].Name = sessionsName()
	spec.Maps["sessions"].MaxEntries, spec.Maps["flows"].MaxEntries = sessions, 2*sessions
	p = &Program{pin: pin, strangers: make(map[uint32]bool)}
	if err := p.tidy(); err != nil {
		return nil, err
	}
	pinned, err := p.pinned()
	if err != nil {
		return nil, err
	}
	if pinned, err = p.resize(pinned, sessions); err != nil {
		return nil, err
	}
	for name, m := range pinned {
		defer m.Close() // the collection has clones
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	p.size, p.Adopted = spec.Maps["sessions"].MaxEntries, pinned != nil
	if err := spec.LoadAndAssign(&p.objects, &ebpf.CollectionOptions{MapReplacements: pinned}); err != nil {
		return nil, fmt.Errorf("programs: %w", err)
	}
	if err := p.open(); err != nil {
		return nil, errors.Join(err, p.objects.Close())
	}
	return p, nil
}

// open maps the maps into memory, and pins new ones. The maps ports and places are never pinned: programs that
// an earlier process has attached have their own.
func (p *Program) open() error {
	if err := p.mapMemory(); err != nil {
		return err
	}
	if err := p.ports.open(p.size, &p.objects, p.leads); err != nil {
		return errors.Join(err, p.unmap())
	}
	if err := p.pinMaps(); err != nil {
		return errors.Join(err, p.ports.close(), p.unmap())
	}
	return nil
}

// knowsFlag finds out by a trial whether bpf_l4_csum_replace knows the flag for IPv6.
func knowsFlag(spec *ebpf.CollectionSpec) (bool, error) {
	probe, err := ebpf.NewProgram(spec.Programs["penstock_probe"])
	if err != nil {
		return false, fmt.Errorf("programs: %w", err)
	}
	defer probe.Close()
	frame := make([]byte, 14+40+20)
	frame[12], frame[13], frame[14] = 0x86, 0xdd, 0x60
	got, err := probe.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		return false, fmt.Errorf("probe of bpf_l4_csum_replace: %w", err)
	}
	return got == 0, nil
}

// mapMemory maps the sessions' records into memory. The size of a record is a multiple of eight bytes.
func (p *Program) mapMemory() (err error) {
	length := (int(p.size)*sessionSize + pageMask) &^ pageMask
	if p.memory, err = mapped(p.objects.Sessions, length); err != nil {
		return fmt.Errorf("memory of the sessions: %w", err)
	}
	return nil
}

// Size returns how many sessions there is room for.
func (p *Program) Size() uint32 { return p.size }

// Memory returns how much kernel memory the maps take. The figure comes from the kernel, which also shows it in
// /proc/self/fdinfo (kernel/bpf/syscall.c, bpf_map_show_fdinfo).
func (p *Program) Memory() (bytes uint64) {
	for _, m := range []*ebpf.Map{p.objects.Sessions, p.objects.Flows, p.objects.Ports, p.objects.Places} {
		if info, err := m.Info(); err == nil {
			if n, ok := info.Memlock(); ok {
				bytes += n
			}
		}
	}
	return bytes
}

// Events returns a reader of the changes that the programs report. The caller closes it.
func (p *Program) Events() (*ringbuf.Reader, error) { return ringbuf.NewReader(p.objects.Events) }

// Attach attaches the guard and then the translation to a device of this network namespace. If links of the
// device are pinned, they get these programs instead of their former ones. New links are pinned if Load was
// given a directory. The caller owns the links. It must close them in reverse order, so that sockets of
// sessions in the lane are never without the guard.
func (p *Program) Attach(device int) (links []link.Link, err error) {
	for _, a := range []struct {
		program *ebpf.Program
		at      ebpf.AttachType
		name    string
	}{{p.objects.PenstockEgress, ebpf.AttachTCXEgress, "egress"}, {p.objects.PenstockIngress, ebpf.AttachTCXIngress, "ingress"}} {
		l, err := p.attach(device, a.program, a.at, a.name)
		if err != nil {
			for _, l := range links {
				err = errors.Join(err, l.Close())
			}
			return nil, err
		}
		links = append(links, l)
		if p.pin != "" {
			p.attached = append(p.attached, pinning{path: p.linkPath(device, a.name), link: l})
		}
	}
	return links, nil
}

func (p *Program) attach(device int, program *ebpf.Program, at ebpf.AttachType, name string) (link.Link, error) {
	path := p.linkPath(device, name)
	if p.pin != "" {
		l, err := link.LoadPinnedLink(path, nil)
		if err == nil {
			if err = l.Update(program); err == nil {
				stepped()
				return l, nil
			}
			if err = errors.Join(err, l.Close()); errors.Is(err, syscall.ENOLINK) { // the device has gone since Load
				err = errors.Join(os.Remove(path), fs.ErrNotExist)
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: device, Program: program, Attach: at})
	if err == nil && p.pin != "" {
		stepped()
		if err = l.Pin(path); err != nil {
			err = errors.Join(err, l.Close())
		}
		stepped()
	}
	return l, err
}

// Close frees the programs and maps. Programs that are attached or pinned stay.
func (p *Program) Close() error { return errors.Join(p.ports.close(), p.unmap(), p.objects.Close()) }

func (p *Program) unmap() error {
	err := syscall.Munmap(p.memory)
	p.memory = nil
	return err
}

// Name is the ingress program's name, as far as the kernel stores it.
const Name = "penstock_ingres"

// ProbeTCX finds out by a trial whether the kernel has TCX. If it has, attaching to a device that does not
// exist fails with ENODEV (kernel/bpf/tcx.c, tcx_link_attach).
func (p *Program) ProbeTCX() error {
	const noDevice = 1<<31 - 1
	l, err := link.AttachTCX(link.TCXOptions{Interface: noDevice, Program: p.objects.PenstockIngress, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		return errors.Join(errors.New("attached to a device that does not exist"), l.Close())
	}
	if errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}
