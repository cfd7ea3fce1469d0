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

// An Unavailable is the error on a host, or in a process, in which no session can leave user space.
type Unavailable struct {
	Missing []string // capabilities and features of the kernel, such as CAP_BPF and TCX
	Err     error    // the error of the attempt
}

// Error names all that is missing.
func (e *Unavailable) Error() string {
	return fmt.Sprintf("lane: not available: %s: %v", strings.Join(e.Missing, ", "), e.Err)
}

// Unwrap returns the cause.
func (e *Unavailable) Unwrap() error { return e.Err }

// Probe finds out by a trial whether sessions can leave user space here: it loads the programs and unloads
// them, attaches to a device that does not exist, and sets TCP_REPAIR. It leaves nothing behind. The error is
// an [*Unavailable]. What cannot be found out counts as not available.
func Probe() error {
	p, err := load(1, "")
	if err != nil {
		return err
	}
	return p.Close()
}

// load checks what the programs need, and then loads them. The caller closes them.
func load(sessions uint32, pin string) (*program.Program, error) {
	if runtime.GOARCH != "amd64" {
		// The programs read constants after the state, without a barrier. Only x86 allows that.
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
	missing := "loading of BPF programs"
	var refused *ebpf.VerifierError
	switch {
	case btfMissing():
		missing = "BTF of the kernel (CONFIG_DEBUG_INFO_BTF)"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.E2BIG) && !errors.As(err, &refused):
		missing = "memory for that many sessions"
	case errors.As(err, &refused):
		missing, err = "BPF helpers or types that the programs need", refused.Cause
	}
	return &Unavailable{[]string{missing}, err}
}

func btfMissing() bool {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return err != nil
}

// repairable tries TCP_REPAIR on a new socket.
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

// capable returns an error with the capabilities that this process lacks. CAP_SYS_ADMIN replaces CAP_BPF and
// CAP_PERFMON (include/linux/capability.h, bpf_capable and perfmon_capable).
func capable() error {
	set, err := sys.Capabilities()
	if err != nil {
		return &Unavailable{[]string{"readable capabilities"}, err}
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

// A Reason says why a session does not leave user space, or could not come back. It is an error, so that
// errors.Is finds it in errors that also name the operation.
type Reason uint8

// Reasons. The reasons up to Interrupted come from the last attempt: from the packet, from the moment, or from
// the two sockets as the program saw them. The later reasons are known when the connections are joined, or
// belong to [Session.ComeBack].
const (
	None             Reason = iota
	NoSocket                // no socket has the addresses of the packets
	NotEstablished          // a socket is ending, or in repair
	Unread                  // a socket has bytes that were not read
	OutOfOrder              // a socket has packets out of order, or a backlog
	NotNext                 // the packet is not the next one
	Unacknowledged          // bytes that were sent are not acknowledged
	InFlight                // bytes are on the way to a socket
	ResetSeen               // an RST is on the way to a socket
	Timestamps              // one connection has timestamps and the other has none
	Microseconds            // timestamps in microseconds
	SegmentSize             // segments of one connection are too large for the other
	PathMTU                 // segments of one connection do not fit the other's path
	ECN                     // one connection has ECN and the other has none, a congestion mark was not answered yet, or ECN is accurate ECN
	Multipath               // MPTCP
	Signed                  // TCP-MD5 or TCP-AO
	Urgent                  // an urgent byte
	UpperLayer              // an upper layer protocol, such as kernel TLS
	BigTCP                  // segments above 64 KiB
	Device                  // no packet of one side has arrived yet, or only one side is on the loopback
	Route                   // packets leave at another device than they arrive at, or by IPsec, a tunnel or a mark, or the route is not known
	Interrupted             // another packet arrived during the attempt
	MixedFamilies           // one connection is IPv4 and the other IPv6
	LinkLocal               // an address that is valid on one link only, and has a zone
	SharedConnection        // the other end of a connection belongs to a session too
	Full                    // no slot is free
	NotTCP                  // a descriptor that is no TCP socket
	JoinedAlready           // a connection belongs to another session of this lane
	Kept                    // ComeBack keeps it, until MayLeave
	AddressTaken            // while coming back: another socket has the address
	NotPermitted            // while coming back: CAP_NET_ADMIN is missing
	Unrestorable            // while coming back: a socket could not be made

	reasons
)

var reasonTexts = [reasons]string{
	None: "none", NoSocket: "socket not found", NotEstablished: "socket is ending", Unread: "unread bytes", OutOfOrder: "packets out of order",
	NotNext: "packet is not the next", Unacknowledged: "unacknowledged bytes", InFlight: "bytes on the way", ResetSeen: "reset on the way",
	Timestamps: "timestamps on one side only", Microseconds: "timestamps in microseconds", SegmentSize: "segments do not fit", PathMTU: "path MTU too small",
	ECN: "ECN differs", Multipath: "MPTCP", Signed: "signed segments", Urgent: "urgent byte", UpperLayer: "upper layer protocol", BigTCP: "big TCP",
	Device: "device not known", Route: "route by another way", Interrupted: "interrupted by another packet",
	MixedFamilies: "IPv4 on one side and IPv6 on the other", LinkLocal: "link-local address", SharedConnection: "both ends are joined here", Full: "no slot is free",
	NotTCP: "not a TCP socket", JoinedAlready: "connection is joined already",
	Kept: "kept in user space", AddressTaken: "address is taken", NotPermitted: "TCP_REPAIR is not permitted", Unrestorable: "socket cannot be made",
}

// String returns the reason as a few words, such as "no slot is free".
func (r Reason) String() string {
	if r >= reasons {
		return "unknown"
	}
	return reasonTexts[r]
}

// Error returns the same text as String.
func (r Reason) Error() string { return r.String() }
