package doctor

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// cgroupRoots are where the directories of a controller are mounted, in both
// versions of cgroups (cgroups(7)). The second version has none of its own.
func cgroupRoots(controllers string) []string {
	if controllers == "" {
		return []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}
	}
	roots := []string{"sys/fs/cgroup/" + controllers}
	for c := range strings.SplitSeq(controllers, ",") {
		roots = append(roots, "sys/fs/cgroup/"+c)
	}
	return roots
}

// cgroups returns the directories that may limit this process by a controller: its own and
// those above. In a container the path may be one of the host's, which is not there; then
// there is only the root.
func (h host) cgroups(controller string) (dirs []string) {
	text, _ := h.text("proc/self/cgroup")
	for line := range strings.Lines(text) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(part) != 3 || part[1] != "" && !slices.Contains(strings.Split(part[1], ","), controller) {
			continue
		}
		for _, root := range cgroupRoots(part[1]) {
			for dir := path.Clean("/" + part[2]); ; dir = path.Dir(dir) {
				dirs = append(dirs, strings.TrimSuffix(root+dir, "/"))
				if dir == "/" {
					break
				}
			}
		}
	}
	return dirs
}

// cpuLimit returns the tightest limit in force: so many microseconds of processor
// time in each period.
func (h host) cpuLimit() (quota, period number) {
	for _, dir := range h.cgroups("cpu") {
		q, p := h.number(dir+"/cpu.cfs_quota_us"), h.number(dir+"/cpu.cfs_period_us")
		if text, ok := h.text(dir + "/cpu.max"); ok {
			first, second, _ := strings.Cut(text, " ")
			q, p = parse(first), parse(second)
		}
		if !q.known || !p.known || q.value <= 0 || p.value <= 0 { // -1 or "max": no limit
			continue
		}
		if !quota.known || q.value*period.value < quota.value*p.value {
			quota, period = q, p
		}
	}
	return quota, period
}

// noLimit is from where on a limit of memory is none; the first version writes one
// page less than 8 EiB.
const noLimit = 1 << 60

// memoryLimit returns the tightest limit in force, in bytes.
func (h host) memoryLimit() (limit number) {
	for _, dir := range h.cgroups("memory") {
		for _, file := range []string{"/memory.max", "/memory.limit_in_bytes"} {
			n := h.number(dir + file)
			if n.known && n.value < noLimit && (!limit.known || n.value < limit.value) {
				limit = n
			}
		}
	}
	return limit
}

// parse reads a number.
func parse(s string) number {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return number{}
	}
	return known(n)
}
