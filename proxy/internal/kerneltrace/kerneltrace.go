// Package kerneltrace attaches BPF programs to tracepoints of the kernel, and reads what they count about the TCP
// sockets and the threads of some processes.
//
// The programs are in bpf/trace.c. They count in maps of a fixed size, about 12 MiB in all, so nothing is sent to
// user space during the trace. Programs and maps are held only by descriptors, never pinned: nothing is left when the
// process ends, however it ends.
package kerneltrace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang -target bpfel -cflags "-O2 -Wall -Wextra -Wno-unused-parameter -mcpu=v3" -type flow -type place -type event_key -type tally -type histogram -type duration_key -type thread -type ownership trace bpf/trace.c

// A Config selects the processes that are traced.
type Config struct {
	// PIDs are the processes. The trace covers the sockets that they have at the beginning, the sockets that they
	// connect later, and the connections to addresses at which they listen at the beginning.
	PIDs []int
	// Cgroup is a directory of cgroup v2. The sockets and threads of this cgroup, and of the cgroups below it at the
	// beginning, are traced in addition to the sockets of PIDs; PIDs need not include its processes. If it is "",
	// only PIDs are traced.
	Cgroup string

	rename map[string]string // for tests: other names to look for, by tracepoint
}

// A Missing is a tracepoint that could not be attached.
type Missing struct {
	Tracepoint string
	Err        error
}

// A Tracer is a set of attached programs. Its methods must not be called concurrently.
type Tracer struct {
	maps     *ebpf.Collection
	programs []*ebpf.Program // owned, like the links
	links    []link.Link
	// sampled are the programs that see every packet of the machine, in the order in which they are attached.
	// sampledLinks is empty while they are detached.
	sampled      []*ebpf.Program
	sampledLinks []link.Link
	missing      []Missing
	notes        []string
	sockets      []Socket
	reasons      reasons
	jiffies      bool // the length of a clock tick is known
}

// Open loads and attaches the programs. It returns a [*PrivilegeError] if the process may not do this. A kernel
// that lacks some of the tracepoints is no error, see [Tracer.Missing]. A kernel that lacks all of them is an
// error. The caller calls Close.
func Open(cfg Config) (t *Tracer, err error) {
	if err := Allowed(); err != nil {
		return nil, err
	}
	t = new(Tracer)
	defer func() {
		if err != nil {
			t.Close()
			t = nil
		}
	}()
	spec, err := loadTrace()
	if err != nil {
		return t, fmt.Errorf("trace: programs: %w", err)
	}
	if err := t.configure(spec, &cfg); err != nil {
		return t, err
	}
	if err := t.makeMaps(spec); err != nil {
		return t, err
	}
	if err := t.fill(&cfg); err != nil {
		return t, err
	}
	t.attachAll(spec, &cfg)
	if len(t.links)+len(t.sampledLinks) == 0 {
		return t, fmt.Errorf("trace: no tracepoint could be attached: %w", t.missing[0].Err)
	}
	return t, nil
}

func (t *Tracer) configure(spec *ebpf.CollectionSpec, cfg *Config) error {
	set := func(name string, v any) error {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("trace: constant %s: %w", name, err)
		}
		return nil
	}
	var only, byCgroup, namespace uint32
	if cfg.Cgroup != "" {
		byCgroup = 1
	} else if len(cfg.PIDs) == 1 {
		only = uint32(cfg.PIDs[0])
	}
	if len(cfg.PIDs) > 0 {
		n, err := netnsOf(cfg.PIDs[0])
		if err != nil {
			return fmt.Errorf("trace: network namespace of process %d: %w", cfg.PIDs[0], err)
		}
		namespace = n
	}
	tick, err := tickLength()
	if err != nil {
		t.notes = append(t.notes, "the length of a clock tick is unknown, so waits for retransmissions by timeout are not counted: "+err.Error())
	}
	t.jiffies = err == nil
	t.reasons = loadReasons()
	for name, reason := range map[string]string{"purged": "queue_purge", "no_socket": "no_socket"} {
		if err := set(name, t.reasons.dropNumber(reason)); err != nil {
			return err
		}
	}
	return errors.Join(set("only_tgid", only), set("by_cgroup", byCgroup), set("namespace", namespace), set("jiffy_ns", uint64(tick)))
}

func (t *Tracer) makeMaps(spec *ebpf.CollectionSpec) error {
	only := spec.Copy()
	only.Programs = map[string]*ebpf.ProgramSpec{}
	maps, err := ebpf.NewCollection(only)
	if err != nil {
		return fmt.Errorf("trace: maps: %w", err)
	}
	t.maps = maps
	return nil
}

// fill puts the processes, their sockets and the cgroups into the maps.
func (t *Tracer) fill(cfg *Config) error {
	for _, pid := range cfg.PIDs {
		if err := t.put("processes", uint32(pid), uint32(1)); err != nil {
			return err
		}
	}
	if cfg.Cgroup != "" {
		ids, err := cgroupIDs(cfg.Cgroup)
		if err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		for _, id := range ids {
			if err := t.put("cgroups", id, uint32(1)); err != nil {
				return err
			}
		}
	}
	sockets, notes := Sockets(cfg.PIDs)
	t.sockets, t.notes = sockets, append(t.notes, notes...)
	return t.fillSockets()
}

func (t *Tracer) fillSockets() error {
	listening := make(map[tracePlace]bool)
	for _, s := range t.sockets {
		for _, p := range s.places() {
			listening[p] = true
			if err := t.put("listening", p, uint32(1)); err != nil {
				return err
			}
		}
	}
	for _, s := range t.sockets {
		if s.Listens {
			continue
		}
		o := traceOwnership{Side: uint64(Connected)}
		if slices.ContainsFunc(s.accepting(), func(p tracePlace) bool { return listening[p] }) {
			o.Side = uint64(Accepted)
		}
		if err := t.put("owners", s.flow(), o); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tracer) put(name string, key, value any) error {
	if err := t.maps.Maps[name].Put(key, value); err != nil {
		return fmt.Errorf("trace: map %s: %w", name, err)
	}
	return nil
}

// Missing returns the tracepoints that are not attached, with the reasons.
func (t *Tracer) Missing() []Missing { return t.missing }

// Notes returns lines about facts that are not known, and so are not in the figures.
func (t *Tracer) Notes() []string { return t.notes }

// Close detaches and frees the programs.
func (t *Tracer) Close() error {
	var errs []error
	for _, l := range slices.Concat(t.sampledLinks, t.links) {
		errs = append(errs, l.Close())
	}
	for _, p := range t.programs {
		errs = append(errs, p.Close())
	}
	if t.maps != nil {
		t.maps.Close()
	}
	t.links, t.sampledLinks, t.programs, t.maps = nil, nil, nil, nil
	return errors.Join(errs...)
}

var _ io.Closer = (*Tracer)(nil)

// explainBTF explains that the kernel lacks the type information that the programs need.
func explainBTF(err error) error {
	if _, missing := os.Stat("/sys/kernel/btf/vmlinux"); missing != nil {
		return fmt.Errorf("this kernel has no type information (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	return err
}
