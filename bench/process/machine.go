package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// MachineCPU returns how long all processors together have been busy since the machine started, with processes,
// kernel threads and interrupts. It leaves out time that is idle, waiting for I/O, or stolen by a hypervisor
// (proc(5), /proc/stat). Its unit is a tick of 10 ms.
func MachineCPU() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("processor time of the machine: %w", err)
	}
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	return busy(string(line))
}

// busy adds up the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal guest guest_nice.
// The times of guests are already in user and nice.
func busy(line string) (time.Duration, error) {
	f := strings.Fields(line)
	if len(f) < 8 || f[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var sum time.Duration
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		sum += ticks(n)
	}
	return sum, nil
}

// Slab returns how many bytes the kernel's slab allocator holds on the whole machine: sockets, files, pipes and
// much else (proc(5), /proc/meminfo).
func Slab() (int64, error) {
	n, err := sized("/proc/meminfo", "Slab")
	if err != nil {
		return 0, fmt.Errorf("memory of the kernel: %w", err)
	}
	return n, nil
}

// sized returns a value in bytes from a file with lines like "Name: 12 kB".
func sized(path, name string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		value, found := strings.CutPrefix(line, name+":")
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("%s has no line %s", path, name)
}
