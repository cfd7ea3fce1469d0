package doctor

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/penstock/penstock/internal/sys"
)

// timeWait is how many seconds a port stays taken after the side that closed first
// has closed (TCP_TIMEWAIT_LEN, include/net/tcp.h).
const timeWait = 60

// commonPorts is the width of the range that kernels start with, 32768 to 60999.
const commonPorts = 28_232

// ports is the local ports for connections to targets.
type ports struct {
	Lowest    number   `json:"lowest,omitzero"`
	Highest   number   `json:"highest,omitzero"`
	Reserved  int64    `json:"reserved"` // within the range
	Usable    number   `json:"usable,omitzero"`
	PerSecond number   `json:"new_per_second_and_target,omitzero"` // if all leave a TIME_WAIT here
	Reuse     number   `json:"tcp_tw_reuse,omitzero"`              // 0: never, 1: yes, 2: on loopback only
	Stamps    number   `json:"tcp_timestamps,omitzero"`            // without them there is no reuse
	LatePort  tristate `json:"bind_address_no_port,omitzero"`      // IP_BIND_ADDRESS_NO_PORT works
	Sessions  int      `json:"sessions"`                           // that the descriptors allow

	place
}

func lookPorts(p *process) facts {
	late := latePort()
	p.sandbox(late)
	f := ports{
		Reuse: p.parameter("net.ipv4.tcp_tw_reuse"), Stamps: p.parameter("net.ipv4.tcp_timestamps"),
		LatePort: works(late), place: p.place,
	}
	if p.descriptors > 0 {
		f.Sessions = p.Sessions(p.descriptors)
	}
	bounds := p.numbers("proc/sys/net/ipv4/ip_local_port_range")
	if len(bounds) != 2 || bounds[0] > bounds[1] {
		return f
	}
	f.Lowest, f.Highest = known(bounds[0]), known(bounds[1])
	reserved, _ := p.text("proc/sys/net/ipv4/ip_local_reserved_ports")
	f.Reserved = within(reserved, bounds[0], bounds[1])
	f.Usable = known(bounds[1] - bounds[0] + 1 - f.Reserved)
	f.PerSecond = known(f.Usable.value / f.wait())
	return f
}

// reuses reports whether a port that waits is taken again for the same target, after a second,
// instead of being out of use for all its time (tcp_twsk_unique, net/ipv4/tcp_ipv4.c). The
// target has to send timestamps too.
func (f ports) reuses() bool { return f.Reuse.value == 1 && f.Stamps != known(0) }

// wait is for how many seconds a port is out of use.
func (f ports) wait() int64 {
	if f.reuses() {
		return 1
	}
	return timeWait
}

// within counts the ports of a list such as 8080,9000-9010 that are in a range.
func within(list string, lowest, highest int64) (n int64) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.ParseInt(from, 10, 64)
		b, err2 := strconv.ParseInt(to, 10, 64)
		if err1 == nil && err2 == nil {
			n += max(min(b, highest)-max(a, lowest)+1, 0)
		}
	}
	return n
}

// latePort connects from a chosen address, with a port that is chosen by connect(2) and not by
// bind(2), so that one port serves many targets.
func latePort() error {
	network, address := either(), netip.MustParseAddrPort("127.0.0.1:0")
	if network == "tcp6" {
		address = netip.MustParseAddrPort("[::1]:0")
	}
	client, server, err := connect(network, func(fd int) error {
		if err := sys.SetsockoptInt(fd, sys.IPPROTO_IP, sys.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return answered("setsockopt IP_BIND_ADDRESS_NO_PORT", err)
		}
		if err := sys.Bind(fd, address); err != nil {
			return os.NewSyscallError("bind", err)
		}
		port, err := sys.LocalPort(fd)
		return expect(port, 0, "getsockname", err)
	})
	if err != nil {
		return err
	}
	client.Close()
	return server.Close()
}

func (f ports) judge() finding {
	if !f.Usable.known {
		return finding{state: Unknown, found: "ip_local_port_range cannot be read", cost: "sessions to one target end where its ports end"}
	}
	found := fmt.Sprintf("%s: as many sessions to one target, %s", several(f.Usable.value, "port", "ports"), f.rate())
	if f.LatePort.known && !f.LatePort.yes {
		found += "; no IP_BIND_ADDRESS_NO_PORT"
	}
	tight := f.Usable.value < int64(f.Sessions) && f.Lowest.value > 1024+commonPorts/4
	if f.Usable.value >= commonPorts && !tight {
		return finding{state: OK, found: found}
	}
	return finding{
		state: Degraded, found: found,
		cost: fmt.Sprintf("the descriptors allow %s; beyond %s to one target, and beyond %s per second of those that Penstock ends first (their ports are out of use for %d s), connect fails",
			sessions(f.Sessions), f.Usable, f.PerSecond, f.wait()),
		mend: append(f.netSysctl(setting{"net.ipv4.ip_local_port_range", fmt.Sprintf("1024 %d", math.MaxUint16)}), "more targets: repeat --to"),
	}
}

// rate says how many sessions to one target can begin in a second, and why.
func (f ports) rate() string {
	text := several(f.PerSecond.value, "new one", "new ones") + " per second"
	switch {
	case f.reuses():
		text += " (tcp_tw_reuse)"
	case f.Reuse.value == 2 && f.Stamps != known(0):
		text += " (more on loopback: tcp_tw_reuse)"
	}
	return text
}
