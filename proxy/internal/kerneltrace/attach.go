package kerneltrace

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/penstock/penstock/internal/sys"
)

// An attachment is a tracepoint with its programs. The prototypes of tracepoints change between kernels, so the first
// program that the kernel accepts is attached.
type attachment struct {
	tracepoint string
	programs   []string
	sampled    bool // attached only part of the time, see Wait
}

var attachments = []attachment{
	{"inet_sock_set_state", []string{"penstock_state"}, false}, // comes first, because it shows whose connections there are
	{"tcp_retransmit_skb", []string{"penstock_retransmit"}, false},
	{"tcp_retransmit_synack", []string{"penstock_synack"}, false},
	{"tcp_send_reset", []string{"penstock_reset_sent", "penstock_reset_plain"}, false},
	{"tcp_receive_reset", []string{"penstock_reset_received"}, false},
	{"kfree_skb", []string{"penstock_drop", "penstock_drop_plain"}, false},
	{"sock_exceed_buf_limit", []string{"penstock_buffer_limit"}, false},
	{"dql_stall_detected", []string{"penstock_device_stall"}, false},
	{"net_dev_start_xmit", []string{"penstock_dequeue"}, true},
	{"net_dev_queue", []string{"penstock_queue"}, true},
	{"sched_switch", []string{"penstock_switch"}, false},
	{"sched_wakeup", []string{"penstock_wakeup"}, false},
	{"sched_wakeup_new", []string{"penstock_wakeup_new"}, false},
}

// attachAll attaches to each tracepoint, and notes failures in missing. It loads all programs together, so the
// kernel's type information is read once. If that fails, it loads them one by one.
func (t *Tracer) attachAll(spec *ebpf.CollectionSpec, cfg *Config) {
	var first []string
	for _, a := range attachments {
		first = append(first, a.programs[0])
		for _, program := range a.programs {
			if other, ok := cfg.rename[a.tracepoint]; ok {
				spec.Programs[program].AttachTo = other
			}
		}
	}
	loaded, together := t.load(spec, first...)
	if together == nil {
		defer loaded.Close()
	}
	for _, a := range attachments {
		err := t.attachLoaded(loaded, a.programs[0], a.sampled)
		if together != nil {
			err = t.attachOne(spec, a)
		}
		if err != nil {
			t.missing = append(t.missing, Missing{spec.Programs[a.programs[0]].AttachTo, explain(err)})
		}
	}
}

// attachOne loads the programs of a tracepoint, and attaches the first that works.
func (t *Tracer) attachOne(spec *ebpf.CollectionSpec, a attachment) (err error) {
	for _, name := range a.programs {
		var loaded *ebpf.Collection
		if loaded, err = t.load(spec, name); err != nil {
			continue
		}
		err = t.attachLoaded(loaded, name, a.sampled)
		loaded.Close()
		if err == nil {
			return nil
		}
	}
	return err
}

// load loads programs that use the existing maps.
func (t *Tracer) load(spec *ebpf.CollectionSpec, names ...string) (*ebpf.Collection, error) {
	some := spec.Copy()
	maps.DeleteFunc(some.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(names, name) })
	return ebpf.NewCollectionWithOptions(some, ebpf.CollectionOptions{MapReplacements: t.maps.Maps})
}

func (t *Tracer) attachLoaded(loaded *ebpf.Collection, name string, sampled bool) error {
	if loaded == nil {
		return nil
	}
	prog := loaded.DetachProgram(name)
	l, err := link.AttachTracing(link.TracingOptions{Program: prog})
	if err != nil {
		return errors.Join(err, prog.Close())
	}
	t.programs = append(t.programs, prog)
	if sampled {
		t.sampled, t.sampledLinks = append(t.sampled, prog), append(t.sampledLinks, l)
	} else {
		t.links = append(t.links, l)
	}
	return nil
}

// explain shortens the errors of loading to one line.
func explain(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.Is(err, btf.ErrNotFound), errors.Is(err, ebpf.ErrNotSupported):
		return explainBTF(fmt.Errorf("this kernel does not have this tracepoint: %w", ebpf.ErrNotSupported))
	case errors.As(err, &verifier):
		return fmt.Errorf("this kernel refuses the program: %w", verifier.Cause)
	}
	return explainBTF(err)
}

// tickLength waits for this number of ticks of the clock, and at most for this time. Its pauses are a part of the
// shortest tick.
const (
	ticks     = 10
	tickLimit = time.Second
	tickPause = 200 * time.Microsecond
)

// tickLength measures the length of a clock tick, CONFIG_HZ, which the kernel does not report to every user. It takes
// the time from one tick to the tenth after it.
func tickLength() (time.Duration, error) {
	p, err := loadOne("penstock_jiffies")
	if err != nil {
		return 0, err
	}
	defer p.Close()
	now := func() (uint32, error) { return p.Run(new(ebpf.RunOptions)) }
	limit := time.Now().Add(tickLimit)
	await := func(n uint32) error {
		for {
			v, err := now()
			switch {
			case err != nil:
				return err
			case int32(v-n) >= 0:
				return nil
			case time.Now().After(limit):
				return errors.New("the clock does not tick")
			}
			time.Sleep(tickPause)
		}
	}
	first, err := now()
	if err == nil {
		err = await(first + 1)
	}
	begin := time.Now()
	if err == nil {
		err = await(first + 1 + ticks)
	}
	return nearestTick(time.Since(begin) / ticks), err
}

// nearestTick returns the nearest length that a kernel can have (kernel/Kconfig.hz).
func nearestTick(measured time.Duration) time.Duration {
	best := time.Second / 100
	for _, hz := range []time.Duration{250, 300, 1000} {
		if tick := time.Second / hz; (tick - measured).Abs() < (best - measured).Abs() {
			best = tick
		}
	}
	return best
}

// loadOne loads a program that needs no map.
func loadOne(name string) (*ebpf.Program, error) {
	spec, err := loadTrace()
	if err != nil {
		return nil, err
	}
	return ebpf.NewProgram(spec.Programs[name])
}

// maxCgroups is the capacity of the map of cgroups.
const maxCgroups = 1024

// cgroup2Magic is the type of the file system of cgroup v2 (CGROUP2_SUPER_MAGIC in
// include/uapi/linux/magic.h).
const cgroup2Magic = 0x63677270

// cgroupIDs returns the IDs of a cgroup and of the cgroups below it: the inode numbers of their directories
// (cgroup_id in include/linux/cgroup.h).
func cgroupIDs(path string) (ids []uint64, err error) {
	var at syscall.Statfs_t
	if err := syscall.Statfs(path, &at); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	if at.Type != cgroup2Magic {
		return nil, fmt.Errorf("cgroup %s: not a directory of cgroup v2: write a directory below /sys/fs/cgroup, such as the path after 0:: in /proc/PID/cgroup", path)
	}
	err = eachCgroup(path, func(dir string) error {
		var st syscall.Stat_t
		if err := syscall.Stat(dir, &st); err != nil {
			return err
		}
		ids = append(ids, st.Ino)
		if len(ids) > maxCgroups {
			return fmt.Errorf("it has more than %d cgroups below it", maxCgroups)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	return ids, nil
}

// CgroupProcesses returns the processes of a cgroup and of the cgroups below it.
func CgroupProcesses(path string) (pids []int, err error) {
	err = eachCgroup(path, func(dir string) error {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0 stands for a process in another PID namespace
				pids = append(pids, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	return pids, nil
}

// eachCgroup leaves out a cgroup below path that is removed meanwhile, or has only threads: their processes are in the cgroup above.
func eachCgroup(path string, do func(dir string) error) error {
	return filepath.WalkDir(path, func(dir string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = do(dir)
		}
		if dir != path && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EOPNOTSUPP)) {
			return nil
		}
		return err
	})
}

// A PrivilegeError means that the process may not trace.
type PrivilegeError struct {
	Missing []string // capabilities, such as CAP_BPF
	Err     error    // why the program could not be loaded
}

// Error names the missing capabilities.
func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("BPF programs for tracepoints need %s, which this process lacks: %v", strings.Join(e.Missing, " and "), e.Err)
}

// Unwrap returns the cause.
func (e *PrivilegeError) Unwrap() error { return e.Err }

// Allowed finds out whether the process may trace. It loads two programs that do nothing: one needs CAP_BPF, the
// other CAP_PERFMON too (bpf_prog_load in kernel/bpf/syscall.c). It returns a [*PrivilegeError] if the process may
// not trace, and another error if it cannot find out.
func Allowed() error {
	bpf, perfmon := try("penstock_jiffies"), try("penstock_probe")
	if bpf == nil && perfmon == nil {
		return nil
	}
	if !errors.Is(bpf, fs.ErrPermission) && !errors.Is(perfmon, fs.ErrPermission) {
		return fmt.Errorf("BPF programs cannot be loaded: %w", errors.Join(bpf, perfmon))
	}
	e := &PrivilegeError{Err: perfmon}
	if bpf != nil {
		e.Missing, e.Err = append(e.Missing, "CAP_BPF"), bpf
	}
	// Without CAP_BPF the second program is always refused.
	if bpf == nil || !hasPerfmon() {
		e.Missing = append(e.Missing, "CAP_PERFMON")
	}
	return e
}

// hasPerfmon reports whether the process has CAP_PERFMON or CAP_SYS_ADMIN.
func hasPerfmon() bool {
	set, err := sys.Capabilities()
	return err == nil && (set.Has(sys.CAP_PERFMON) || set.Has(sys.CAP_SYS_ADMIN))
}

// try loads a program and closes it again.
func try(name string) error {
	p, err := loadOne(name)
	if err != nil {
		return err
	}
	return p.Close()
}
