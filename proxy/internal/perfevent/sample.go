// Package perfevent samples the CPU time of processes with perf_event_open(2). The result is a pprof profile with
// the stacks of the threads. The stacks include the frames of the kernel, which the profiles of the Go runtime
// lack.
package perfevent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/pprof/profile"
	"github.com/penstock/penstock/internal/sys"
)

const (
	// readEvery is the time between two reads of the rings. At 997 samples of 1 KiB a second, a ring is full after
	// 260 ms.
	readEvery = 50 * time.Millisecond
	// maxStacks is how many different stacks are kept in memory.
	maxStacks = 100_000
)

// ErrFrequency means that the number of samples a second is out of range.
var ErrFrequency = errors.New("from 1 to 1,000 samples a second")

// A Profile is the CPU time of processes while they were sampled. Each sample has the label process with the PID.
type Profile struct {
	*profile.Profile
	// Lost counts samples for which the rings or the memory had no space.
	Lost uint64
	// Unnamed reports that the kernel has hidden its symbols (kernel.kptr_restrict). All frames of the kernel then
	// have the same name.
	Unnamed bool
	// Lacking lists at most ten programs for which not all names of functions were read, and why.
	Lacking []string
}

// Sample samples processes hz times for each second of CPU time, until ctx ends or d has passed. Processes that
// they start meanwhile are sampled, too. Processes that have ended are left out. The error is [fs.ErrNotExist] if
// all have ended, and [fs.ErrPermission] if this process may not sample.
func Sample(ctx context.Context, pids []int, d time.Duration, hz int) (*Profile, error) {
	if hz < 1 || hz > 1000 {
		return nil, fmt.Errorf("perf events: %d: %w", hz, ErrFrequency)
	}
	names, err := newSymbols()
	if err != nil {
		return nil, fmt.Errorf("perf events: %w", err)
	}
	for _, pid := range pids {
		if err := names.read(pid); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("perf events: %w", err)
		}
	}
	if len(names.processes) == 0 {
		return nil, fmt.Errorf("perf events: processes %v: %w", pids, fs.ErrNotExist)
	}
	e, err := open(slices.Collect(maps.Keys(names.processes)), hz)
	if err != nil {
		return nil, fmt.Errorf("perf events: %w", err)
	}
	defer e.close()
	s := &stacks{count: make(map[string]int64)}
	began := time.Now()
	s.collect(ctx, e, d)
	for pid := range s.processes() {
		_ = names.read(pid) // for libraries that were mapped meanwhile; what is known of an ended process stays
	}
	return s.profile(names, began, hz), nil
}

// stacks counts samples by process and stack. A key is the PID (4 bytes), and then the addresses as in a record,
// including their marks.
type stacks struct {
	count        map[string]int64
	lost         uint64
	scratch, key []byte
}

func (s *stacks) processes() map[int]bool {
	set := make(map[int]bool)
	for key := range s.count {
		set[processOf(key)] = true
	}
	return set
}

func processOf(key string) int { return int(binary.NativeEndian.Uint32([]byte(key[:4]))) }

func (s *stacks) collect(ctx context.Context, e *events, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		for _, ring := range e.rings {
			s.scratch = ring.Read(s.scratch[:0])
			s.take(s.scratch)
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// take takes records. A record is a header of type (32 bits), flags (16) and size (16), and then its contents.
func (s *stacks) take(records []byte) {
	for len(records) >= 8 {
		kind, size := binary.NativeEndian.Uint32(records), int(binary.NativeEndian.Uint16(records[6:]))
		if size < 8 || size > len(records) {
			return
		}
		body := records[8:size]
		records = records[size:]
		switch {
		case kind == sys.PERF_RECORD_LOST && len(body) >= 16:
			s.lost += binary.NativeEndian.Uint64(body[8:])
		case kind == sys.PERF_RECORD_SAMPLE && len(body) >= 16: // the PID and the thread, then the number of addresses
			s.key = append(append(s.key[:0], body[:4]...), body[16:]...)
			s.add(s.key)
		}
	}
}

func (s *stacks) add(key []byte) {
	if _, known := s.count[string(key)]; !known && len(s.count) == maxStacks {
		s.lost++
		return
	}
	s.count[string(key)]++
}

func (s *stacks) profile(names *symbols, began time.Time, hz int) *Profile {
	period := int64(1e9 / hz)
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: period,
		TimeNanos: began.UnixNano(), DurationNanos: int64(time.Since(began)),
	}
	b := &builder{p: p, names: names, locations: make(map[place]*profile.Location), functions: make(map[string]*profile.Function)}
	for key, n := range s.count {
		pid := processOf(key)
		if at := b.stack(pid, key[4:]); len(at) > 0 {
			process := map[string][]string{"process": {strconv.Itoa(pid)}}
			p.Sample = append(p.Sample, &profile.Sample{Location: at, Value: []int64{n, n * period}, Label: process})
		}
	}
	return &Profile{Profile: p, Lost: s.lost, Unnamed: len(names.kernel) == 0, Lacking: names.lacking}
}

// A builder makes the locations of a profile.
type builder struct {
	p         *profile.Profile
	names     *symbols
	locations map[place]*profile.Location
	functions map[string]*profile.Function
}

// A place is an address in a process, or in the kernel if pid is 0.
type place struct {
	pid int
	at  uint64
}

// stack returns the locations of a record's addresses, the innermost first. Marks between the addresses say
// whether the next addresses are the kernel's. In each part, all addresses but the first are return addresses,
// which may already belong to the next function.
func (b *builder) stack(pid int, addresses string) (list []*profile.Location) {
	in, first := pid, true
	for ; len(addresses) >= 8; addresses = addresses[8:] {
		at := binary.NativeEndian.Uint64([]byte(addresses[:8]))
		switch {
		case at == sys.PERF_CONTEXT_KERNEL:
			in, first = 0, true
			continue
		case at >= sys.PERF_CONTEXT_MAX:
			in, first = pid, true
			continue
		}
		if !first {
			at--
		}
		first = false
		list = append(list, b.location(place{in, at}))
	}
	return list
}

func (b *builder) location(of place) *profile.Location {
	if l := b.locations[of]; l != nil {
		return l
	}
	where := b.names.inKernel(of.at)
	if of.pid != 0 {
		where = b.names.at(of.pid, of.at)
	}
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Address: of.at, Line: []profile.Line{{Function: b.function(where), Line: int64(where.line)}}}
	b.locations[of] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

func (b *builder) function(of symbol) *profile.Function {
	key := of.name + "\x00" + of.file // two programs may have functions with the same name
	if f := b.functions[key]; f != nil {
		return f
	}
	f := &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: of.name, SystemName: of.name, Filename: of.file}
	b.functions[key] = f
	b.p.Function = append(b.p.Function, f)
	return f
}
