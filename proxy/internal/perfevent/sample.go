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
	// readEvery is the time between two looks at the rings: at 997 samples of 1 KiB a second a ring lasts for 260 ms.
	readEvery = 50 * time.Millisecond
	// maxStacks bounds the memory: different stacks that are kept.
	maxStacks = 100_000
)

// ErrFrequency is returned for samples per second that are out of range.
var ErrFrequency = errors.New("from 1 to 1,000 samples a second")

// A Profile is the CPU time of processes while they were sampled. Each sample has the label process: its number.
type Profile struct {
	*profile.Profile
	// Lost counts samples without a place in the rings or in memory.
	Lost uint64
	// Unnamed reports that the kernel has hidden its symbols (kernel.kptr_restrict): all its frames are one name.
	Unnamed bool
}

// Sample samples processes, and those that they start meanwhile, hz times for each second of CPU time, until the context ends
// or the time is over. Processes that have ended are left out, unless all have: that is [fs.ErrNotExist]. Errors of a process
// that may not do so are [fs.ErrPermission].
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
		_ = names.read(pid) // libraries that were mapped meanwhile; a process that has ended keeps what is known
	}
	return s.profile(names, began, hz), nil
}

// stacks are the samples by their process, 4 bytes, and their stack: the addresses as in a record, with their marks.
type stacks struct {
	count        map[string]int64
	lost         uint64
	scratch, key []byte
}

// processes returns the processes that have samples.
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

// take takes records: a header of a type (32 bits), flags (16) and its size (16), and its contents.
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
		case kind == sys.PERF_RECORD_SAMPLE && len(body) >= 16: // of process and thread, then the number of addresses
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

// profile names the stacks.
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
	return &Profile{Profile: p, Lost: s.lost, Unnamed: len(names.kernel) == 0}
}
