package sys

import "golang.org/x/sys/unix"

// Options of sockets that listen, or that have yet to be bound (socket(7), ip(7)).
const (
	SO_REUSEPORT            = unix.SO_REUSEPORT
	IP_BIND_ADDRESS_NO_PORT = unix.IP_BIND_ADDRESS_NO_PORT
)

// Listen makes a bound socket listen with listen(2), or changes the backlog of one
// that does.
func Listen(fd, backlog int) error { return unix.Listen(fd, backlog) }

// ListenQueue returns how many connections wait in the accept queue of a listening
// TCP socket and how many may, which is what became of listen's backlog:
// tcpi_unacked and tcpi_sacked of TCP_INFO (net/ipv4/tcp.c, tcp_get_info).
func ListenQueue(fd int) (queued, backlog int, err error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, 0, err
	}
	return int(info.Unacked), int(info.Sacked), nil
}
