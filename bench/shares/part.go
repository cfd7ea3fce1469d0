package shares

import (
	"strings"

	"github.com/penstock/penstock/bench/report"
)

// deliveries are the kernel's functions in which a packet goes up to a socket, in a softirq of whichever process runs.
var deliveries = map[string]bool{"net_rx_action": true, "__napi_poll": true, "process_backlog": true}

// reads and writes are the functions by which a proxy moves bytes. splice(2) is either, by its inner functions: the pipe is
// at either end.
var (
	reads  = map[string]bool{"__x64_sys_recvfrom": true, "__x64_sys_recvmsg": true, "__x64_sys_read": true, "__x64_sys_readv": true, "tcp_splice_read": true, "splice_file_to_pipe": true}
	writes = map[string]bool{"__x64_sys_sendto": true, "__x64_sys_sendmsg": true, "__x64_sys_write": true, "__x64_sys_writev": true, "splice_to_socket": true}
)

// partOf returns the part of the work that a sample was of.
func partOf(s *sample) report.Part {
	kernel, found := false, report.Waits
	for _, f := range s.stack { // the innermost decides
		kernel = kernel || f.kernel
		switch {
		case isLane(f.symbol):
			return report.Lane
		case deliveries[f.symbol]:
			return report.Delivery
		case found != report.Waits:
		case reads[f.symbol]:
			found = report.Reads
		case writes[f.symbol]:
			found = report.Writes
		}
	}
	switch {
	case s.comm != Comm:
		return report.Peers
	case !kernel:
		return report.Code
	}
	return found
}

// isLane reports whether a function is of the programs of the lane, or of the kernel's redirecting for them.
func isLane(symbol string) bool {
	return strings.HasPrefix(symbol, "bpf_prog_") || symbol == "skb_do_redirect"
}
