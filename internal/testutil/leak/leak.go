// Package leak fails a test binary that leaves descriptors or goroutines
// behind. A package that owns descriptors declares
//
//	func TestMain(m *testing.M) { leak.Main(m) }
package leak

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock/penstock/internal/testutil/condition"
)

// Main runs the tests of m, usually a [*testing.M], and exits: with their code if they failed, with 1 if a new
// descriptor or goroutine is left, otherwise with 0. It lists leaks on standard error.
func Main(m interface{ Run() int }) { os.Exit(run(m.Run, os.Stderr, condition.Patience)) }

// run is Main without the exit.
func run(tests func() int, w io.Writer, patience time.Duration) int {
	if err := startPoller(); err != nil {
		fmt.Fprintln(w, "leak:", err)
		return 1
	}
	before := Take()
	goroutines := goleak.IgnoreCurrent()
	if code := tests(); code != 0 {
		return code
	}
	if err := ended(goroutines, patience); err != nil {
		fmt.Fprintln(w, "leak: goroutines:", err)
		return 1
	}
	if leaked := settle(before, patience); len(leaked) > 0 {
		fmt.Fprintln(w, "leak: descriptors left open:")
		for _, l := range leaked {
			fmt.Fprintln(w, "\t"+l)
		}
		return 1
	}
	return 0
}

// startPoller makes the runtime open its epoll and event descriptors, which stay open for good, so that every
// snapshot has them.
func startPoller() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	r.Close()
	w.Close()
	return nil
}

// ended waits until no new goroutine is left. Find itself waits for less than a second, in which a goroutine
// may not get its turn on a busy machine.
func ended(before goleak.Option, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		if err := goleak.Find(before); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// settle waits until no new descriptor is open, and returns the leaks when patience is over. Finalizers may
// hold descriptors (the standard library's splice pipes, for example), so each look follows a collection.
func settle(before Snapshot, patience time.Duration) []string {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause *= 2 {
		leaked := Take().Since(before)
		if len(leaked) == 0 || time.Now().After(deadline) {
			return leaked
		}
		runtime.GC()
		time.Sleep(pause)
	}
}

// Snapshot is the set of descriptors open at one moment: each number with its target in /proc/self/fd, such as
// "socket:[81]" or a path. It is empty on systems without that directory.
type Snapshot map[int]string

// Take returns the descriptors that are open now. It may or may not include descriptors that others open or
// close meanwhile.
func Take() Snapshot {
	const dir = "/proc/self/fd"
	s := Snapshot{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return s
	}
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
			continue
		}
		// The directory's own descriptor is listed, but already closed.
		if what, err := os.Readlink(dir + "/" + e.Name()); err == nil {
			s[fd] = what
		}
	}
	return s
}

// Since lists, in numerical order, the descriptors of s that are not in before or have another target.
func (s Snapshot) Since(before Snapshot) []string {
	var fds []int
	for fd, what := range s {
		if before[fd] != what {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	var out []string
	for _, fd := range fds {
		out = append(out, fmt.Sprintf("%d -> %s", fd, s[fd]))
	}
	return out
}
