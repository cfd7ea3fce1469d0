package upstream

import (
	"fmt"
	"os"
)

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
