package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/sys"
)

// Limit is one of the machine's, and how far it goes.
type Limit struct {
	What   string `json:"what"`   // by the kernel's name
	Why    string `json:"why"`    // its use for each session
	Allows int    `json:"allows"` // sessions
	Mend   string `json:"mend"`   // how to raise it
}

// String is a sentence.
func (l *Limit) String() string {
	return fmt.Sprintf("%s allows %s sessions: %s; for more: %s", l.What, report.Exact(int64(l.Allows)), l.Why, l.Mend)
}

const (
	// spareDescriptors are those that a process needs besides its sessions'.
	spareDescriptors = 128
	// sessionMemory is more than a session takes in all processes and the kernel together, in
	// bytes: two buffers of 32 KiB, two stacks, four sockets and the data that they may have
	// queued.
	sessionMemory = 256 << 10
	// proxySockets and sessionSockets are those of a session in the proxy, and in
	// all processes together.
	proxySockets, sessionSockets = 2, 4
)

// limit finds how many sessions there can be, and fills in how many of them are
// to talk: that share of those asked for.
func (r *SessionsReport) limit(asked, talking int) error {
	all, err := sessionLimits(r.NetworkNamespace)
	if err != nil {
		return err
	}
	r.Limit = slices.MinFunc(all, func(a, b Limit) int { return cmp.Compare(a.Allows, b.Allows) })
	r.Sessions = min(asked, r.Limit.Allows)
	r.Talking = max(min(int(math.Round(float64(talking)*float64(r.Sessions)/float64(asked))), r.Sessions), 1)
	if r.Sessions < 1 {
		return fmt.Errorf("bench: %s", r.Limit.String())
	}
	return nil
}

// sessionLimits asks the kernel. isolated says that there are ports of our own.
func sessionLimits(isolated bool) ([]Limit, error) {
	_, hard, err := sys.RlimitNoFileRange()
	if err != nil {
		return nil, fmt.Errorf("bench: RLIMIT_NOFILE: %w", err)
	}
	nofile := int(min(hard, math.MaxInt32))
	all := []Limit{{
		What: "RLIMIT_NOFILE", Allows: (nofile - spareDescriptors) / proxySockets,
		Why:  fmt.Sprintf("it is %s for each process, and a session is %d descriptors of the proxy", report.Exact(int64(nofile)), proxySockets),
		Mend: "raise the hard limit (ulimit -Hn, LimitNOFILE=)",
	}}
	if low, high, ok := twoNumbers("/proc/sys/net/ipv4/ip_local_port_range"); ok && !isolated {
		all = append(all, Limit{
			What: "net.ipv4.ip_local_port_range", Allows: high - low + 1, Why: "a port for each connection from one address to another",
			Mend: "sysctl net.ipv4.ip_local_port_range='1024 65535'",
		})
	} else {
		const ports = 65535 - 1024 + 1 // package process asks for them
		all = append(all, Limit{What: "the ports of an address", Allows: ports, Why: "one for each connection from one address to another", Mend: "there are no more"})
	}
	if files, ok := filesLeft(); ok {
		all = append(all, Limit{What: "fs.file-max", Allows: files / sessionSockets, Why: fmt.Sprintf("a session is %d sockets on this machine", sessionSockets), Mend: "raise it by sysctl"})
	}
	if free, ok := memoryAvailable(); ok {
		all = append(all, Limit{
			What: "MemAvailable", Allows: int(free / sessionMemory), Mend: "more memory",
			Why: fmt.Sprintf("up to %s for a session in all processes and the kernel", report.Bytes(sessionMemory)),
		})
	}
	return all, nil
}

// filesLeft is how many more files the machine may have open (proc(5),
// /proc/sys/fs/file-max, file-nr).
func filesLeft() (int, bool) {
	most, err := strconv.ParseInt(content("/proc/sys/fs/file-max"), 10, 64)
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields([]byte(content("/proc/sys/fs/file-nr")))
	if len(fields) == 0 {
		return 0, false
	}
	used, err := strconv.ParseInt(string(fields[0]), 10, 64)
	return int(min(most-used, math.MaxInt)), err == nil
}

// memoryAvailable returns how much memory a process may still take without swapping, in bytes.
func memoryAvailable() (int64, bool) {
	var kib int64
	_, err := fmt.Sscanf(firstValue("/proc/meminfo", "MemAvailable"), "%d kB", &kib)
	return kib << 10, err == nil
}

// twoNumbers are those in a file.
func twoNumbers(path string) (a, b int, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, false
	}
	_, err = fmt.Sscan(string(text), &a, &b)
	return a, b, err == nil
}
