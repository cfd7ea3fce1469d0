package write

import (
	"errors"
	"math"
	"os"
	"runtime/metrics"
	"runtime/pprof"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// account is the resources that a part that writes has measured for itself: for writing the
// measured batches, until all of them were with the kernel.
type account struct {
	Bytes  int64 `json:"bytes"`  // written
	Copied int64 `json:"copied"` // of them, or of their parts, in user space

	Elapsed time.Duration `json:"elapsed"`
	User    time.Duration `json:"user"`
	System  time.Duration `json:"system"`

	// Of the runtime: objects and bytes allocated on the heap, collections.
	Objects     int64 `json:"objects"`
	Allocated   int64 `json:"allocated"`
	Collections int64 `json:"collections"`
}

// measure writes batches and returns the resources used.
func (s *sender) measure(batches int64) (*account, error) {
	var before, after snapshot
	before.prepare()
	after.prepare()
	copied := s.copied()
	if err := before.take(); err != nil {
		return nil, err
	}
	if err := s.write(batches); err != nil {
		return nil, err
	}
	if err := after.take(); err != nil {
		return nil, err
	}
	a := after.since(&before)
	a.Bytes, a.Copied = batches*s.bytes, s.copied()-copied
	return a, nil
}

// profile begins a CPU profile, if there is a file for one.
func profile(name string) (stop func() error, err error) {
	if name == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// snapshot is the resources that a process has used until a moment.
type snapshot struct {
	at      time.Time
	usage   sys.Rusage
	metrics [3]metrics.Sample
}

// prepare names the metrics to be read, and reads them once: the first time allocates.
func (s *snapshot) prepare() {
	for i, name := range []string{"/gc/heap/allocs:objects", "/gc/heap/allocs:bytes", "/gc/cycles/total:gc-cycles"} {
		s.metrics[i].Name = name
	}
	metrics.Read(s.metrics[:])
}

func (s *snapshot) take() (err error) {
	metrics.Read(s.metrics[:])
	if s.usage, err = sys.Getrusage(sys.RUSAGE_SELF); err != nil {
		return os.NewSyscallError("getrusage", err)
	}
	s.at = time.Now()
	return nil
}

// since is the resources used from before on.
func (s *snapshot) since(before *snapshot) *account {
	grown := func(i int) int64 {
		return int64(min(s.metrics[i].Value.Uint64()-before.metrics[i].Value.Uint64(), math.MaxInt64))
	}
	return &account{
		Elapsed: s.at.Sub(before.at),
		User:    s.usage.Utime - before.usage.Utime, System: s.usage.Stime - before.usage.Stime,
		Objects: grown(0), Allocated: grown(1), Collections: grown(2),
	}
}

// add adds the resources of another turn.
func (a *account) add(b *account) {
	a.Bytes, a.Copied = a.Bytes+b.Bytes, a.Copied+b.Copied
	a.Elapsed, a.User, a.System = a.Elapsed+b.Elapsed, a.User+b.User, a.System+b.System
	a.Objects, a.Allocated, a.Collections = a.Objects+b.Objects, a.Allocated+b.Allocated, a.Collections+b.Collections
}
