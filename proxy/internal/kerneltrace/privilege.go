package kerneltrace

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/penstock/penstock/internal/sys"
)

// A PrivilegeError is the error of a process that may not trace.
type PrivilegeError struct {
	Missing []string // capabilities, such as CAP_BPF
	Err     error    // of the program that could not be loaded
}

// Error names the capabilities.
func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("BPF programs for tracepoints need %s, which this process lacks: %v", strings.Join(e.Missing, " and "), e.Err)
}

// Unwrap returns the cause.
func (e *PrivilegeError) Unwrap() error { return e.Err }

// Allowed loads two programs that do nothing, and so finds out whether the process may trace:
// one needs CAP_BPF, the other CAP_PERFMON too (bpf_prog_load in kernel/bpf/syscall.c). The
// error is a [*PrivilegeError] if it may not, and another one if it could not be found out.
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
	// Without CAP_BPF the second program is refused either way.
	if bpf == nil || !hasPerfmon() {
		e.Missing = append(e.Missing, "CAP_PERFMON")
	}
	return e
}

// hasPerfmon reports whether the process has CAP_PERFMON, or CAP_SYS_ADMIN in its place.
func hasPerfmon() bool {
	set, err := sys.Capabilities()
	return err == nil && (set.Has(sys.CAP_PERFMON) || set.Has(sys.CAP_SYS_ADMIN))
}

// try loads a program, and lets it go.
func try(name string) error {
	p, err := loadOne(name)
	if err != nil {
		return err
	}
	return p.Close()
}
