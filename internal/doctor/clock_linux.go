package doctor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// clock is how the time is read, which Penstock does at each move of bytes.
type clock struct {
	Source    string `json:"source,omitempty"`
	Available string `json:"available,omitempty"`
	Read      int64  `json:"read_ns"`

	place
}

func lookClock(p *process) facts {
	const dir = "sys/devices/system/clocksource/clocksource0/"
	f := clock{Read: readTime().Nanoseconds(), place: p.place}
	f.Source, _ = p.text(dir + "current_clocksource")
	f.Available, _ = p.text(dir + "available_clocksource")
	return f
}

// readTime measures how long it takes to read the clock: the best of some short
// rounds, since others use the processor too.
func readTime() time.Duration {
	const rounds, reads = 10, 500
	best := time.Hour
	for range rounds {
		start, last := time.Now(), time.Duration(0)
		for range reads {
			last = time.Since(start) // as a session does
		}
		best = min(best, last/reads)
	}
	return best
}

// slowClock is longer than a reading without a system call and shorter than one with it, in
// ns.
const slowClock = 250

// smallMove is the time of the smallest move, in ns (docs/pipe.md).
const smallMove = 11_300

func (f clock) judge() finding {
	source := f.Source
	if source == "" {
		source = "unknown source"
	}
	found := fmt.Sprintf("read in %d ns (%s)", f.Read, source)
	if f.Read < slowClock {
		return finding{state: OK, found: found}
	}
	mend := []string{f.onHost("boot the kernel with clocksource=tsc tsc=reliable, if the machine's counter is")}
	if f.virtual {
		mend = append([]string{"have the hypervisor give the virtual machine an invariant counter (QEMU: -cpu host,+invtsc), or its own clock (kvm-clock)"}, mend...)
	}
	for better := range strings.FieldsSeq(f.Available) {
		if better != f.Source && (better == "tsc" || better == "kvm-clock" || strings.HasPrefix(better, "hyperv")) {
			mend = []string{f.onHost("echo " + better + " > /sys/devices/system/clocksource/clocksource0/current_clocksource")}
			break
		}
	}
	return finding{
		state: Degraded, found: found, mend: mend,
		cost: fmt.Sprintf("each move of bytes reads it once: %.0f %% of a small move's 11 µs", float64(f.Read)*100/smallMove),
	}
}

// onAMD64 is whether the pool's owners need membarrier.
const onAMD64 = runtime.GOARCH == "amd64"

// membarrier is whether the pool's shards may have owners.
type membarrier struct {
	Works  bool `json:"works"`
	Needed bool `json:"needed"` // on this architecture

	err error
	place
}

func lookMembarrier(p *process) facts {
	err := sys.RegisterMembarrier()
	if err == nil {
		err = sys.Membarrier()
	}
	err = os.NewSyscallError("membarrier", err)
	p.sandbox(err)
	return membarrier{Works: err == nil, Needed: onAMD64, err: err, place: p.place}
}

func (f membarrier) judge() finding {
	switch {
	case f.Works:
		return finding{state: OK, found: "pools are entered without an atomic operation"}
	case !f.Needed:
		return finding{state: OK, found: "refused, and not used on this architecture"}
	}
	state := Degraded
	if !forbidden(f.err) && !errors.Is(f.err, errInvalid) {
		state = Unknown
	}
	return finding{
		state: state, found: "refused: " + cause(f.err), mend: f.allow("membarrier"),
		cost: "pools are entered by atomic operations: a lease takes longer than the 0.92 of sync.Pool's 13 ns that it takes otherwise",
	}
}
