package router

import (
	"fmt"
	"os"
	"sync"
)

// A portRange is the ports that the kernel chooses from for a socket that connects
// without having been bound.
type portRange struct{ low, high uint16 }

func (r portRange) has(port uint16) bool { return r.low <= port && port <= r.high }

// allPorts is for when it is not known.
var allPorts = portRange{1, 65535}

// ephemeralPorts reads net.ipv4.ip_local_port_range (ip(7)), which is that of IPv6
// too.
func ephemeralPorts() portRange {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return allPorts
	}
	var r portRange
	if _, err := fmt.Sscan(string(text), &r.low, &r.high); err != nil {
		return allPorts
	}
	return r
}

var ephemeral = sync.OnceValue(ephemeralPorts)

// ephemeralPort reports whether a port is one that the kernel may choose as a local one
// (net.ipv4.ip_local_port_range, ip(7)): a connect to such a port of this machine, without a
// listener, may connect a socket to itself, see [sockopt.ErrSelfConnect].
func ephemeralPort(port uint16) bool { return ephemeral().has(port) }
