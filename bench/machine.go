package bench

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/penstock/penstock/bench/report"
)

// Machine describes the machine on which this process runs, as far as the process may read it.
func Machine() report.Machine {
	m := report.Machine{
		CPU: firstValue("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(), Kernel: "Linux " + content("/proc/sys/kernel/osrelease"),
		Go: runtime.Version(), Governor: content("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), User: "an ordinary user",
	}
	if os.Geteuid() == 0 {
		m.User = "root"
	}
	total := strings.TrimSuffix(firstValue("/proc/meminfo", "MemTotal"), " kB")
	if n, err := strconv.ParseInt(total, 10, 64); err == nil {
		m.MemoryBytes = n << 10
	}
	return m
}

// content returns the content of a small file, or "" if it cannot be read.
func content(path string) string {
	b, _ := os.ReadFile(path)
	return string(bytes.TrimSpace(b))
}

// firstValue returns the value of the first line with that name in a file of lines like "name : value", or "" if
// there is none.
func firstValue(path, name string) string {
	for line := range strings.Lines(content(path)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
