package lane

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/program"
)

// An Unavailable is the error where no session can leave user space.
type Unavailable struct {
	Missing []string // capabilities and features of the kernel, such as CAP_BPF and TCX
	Err     error    // of the attempt
}

// Error names all that is missing.
func (e *Unavailable) Error() string {
	return fmt.Sprintf("lane: not available: %s: %v", strings.Join(e.Missing, ", "), e.Err)
}

// Unwrap returns the cause.
func (e *Unavailable) Unwrap() error { return e.Err }

// Probe finds out by doing whether sessions can leave user space here: it loads the programs and
// lets them go, attaches to a device that there is not, and sets TCP_REPAIR. Nothing is left. The
// error is an [*Unavailable]: unknown is not available.
func Probe() error {
	p, err := load(1, "")
	if err != nil {
		return err
	}
	return p.Close()
}

// load loads the programs once all else that they need is there. The caller closes them.
func load(sessions uint32, pin string) (*program.Program, error) {
	if runtime.GOARCH != "amd64" {
		// The programs read constants after the state without a barrier, which x86 alone allows.
		return nil, &Unavailable{[]string{"x86-64"}, errors.ErrUnsupported}
	}
	if err := capable(); err != nil {
		return nil, err
	}
	if err := repairable(); err != nil {
		return nil, err
	}
	if err := sys.GracePeriod(); err != nil {
		return nil, &Unavailable{[]string{"membarrier of all CPUs"}, err}
	}
	p, err := program.Load(sessions, pin)
	if errors.Is(err, program.ErrElsewhere) {
		return nil, fmt.Errorf("lane: %w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, loading(err)
	}
	if err := p.ProbeTCX(); err != nil {
		return nil, errors.Join(&Unavailable{[]string{"TCX (Linux 6.6)"}, err}, p.Close())
	}
	return p, nil
}

// loading explains why the programs were not loaded.
func loading(err error) error {
	missing := "BPF programs as these"
	var refused *ebpf.VerifierError
	switch {
	case btfMissing():
		missing = "BTF of the kernel (CONFIG_DEBUG_INFO_BTF)"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.E2BIG) && !errors.As(err, &refused):
		missing = "memory for that many sessions"
	case errors.As(err, &refused):
		missing, err = "helpers or types that the programs need", refused.Cause
	}
	return &Unavailable{[]string{missing}, err}
}

func btfMissing() bool {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return err != nil
}

// repairable tries TCP_REPAIR on a socket of its own.
func repairable() error {
	fd, err := sys.StreamSocket(netip.IPv4Unspecified())
	if err == nil {
		defer syscall.Close(fd)
		err = sys.Repair(fd, true)
	}
	if err != nil {
		return &Unavailable{[]string{"TCP_REPAIR"}, err}
	}
	return nil
}

// capable looks which capabilities this process lacks. CAP_SYS_ADMIN stands for two of them
// (include/linux/capability.h, bpf_capable and perfmon_capable).
func capable() error {
	set, err := sys.Capabilities()
	if err != nil {
		return &Unavailable{[]string{"capabilities, which cannot be read"}, err}
	}
	var missing []string
	admin := set.Has(sys.CAP_SYS_ADMIN)
	if !set.Has(sys.CAP_BPF) && !admin {
		missing = append(missing, "CAP_BPF")
	}
	if !set.Has(sys.CAP_PERFMON) && !admin {
		missing = append(missing, "CAP_PERFMON")
	}
	if !set.Has(sys.CAP_NET_ADMIN) {
		missing = append(missing, "CAP_NET_ADMIN")
	}
	if missing != nil {
		return &Unavailable{missing, syscall.EPERM}
	}
	return nil
}
