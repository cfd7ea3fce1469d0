package sockets

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// stillPatience is how long a connection may bring nothing. While the kernel drops packets, for lack of room in a
// queue or of memory for TCP, each pause of the sender is twice as long as the one before: on a machine with ten
// runnable threads for each CPU they were up to 6 s.
const stillPatience = 2 * time.Minute

// A Moving is the reading side of a connection that may take any time as long as bytes come: a Read fails if none
// have come for two minutes. It changes the read deadline of the connection, which still belongs to the caller.
type Moving struct{ *net.TCPConn }

// Read reads from the connection.
func (m Moving) Read(b []byte) (int, error) {
	if err := m.SetReadDeadline(time.Now().Add(stillPatience)); err != nil {
		return 0, err
	}
	return m.TCPConn.Read(b)
}

// Account is the kernel's account of a connection, and of TCP's memory, for the error of a test whose bytes have not
// come. A program that neither reads nor writes looks different in it from a kernel that cannot deliver.
func Account(c syscall.Conn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return err.Error()
	}
	var info sys.TCPInfo
	var known error
	if err := raw.Control(func(fd uintptr) { known = sys.GetTCPInfo(int(fd), &info) }); err != nil || known != nil {
		return fmt.Sprint("no account of the kernel: ", err, known)
	}
	return fmt.Sprintf("state %d, %d bytes received, %d acknowledged, %d not sent, %d segments out, %d lost, %d sent again, backoff %d, probes %d, RTO %d us, congestion window %d; %s",
		info.State, info.Bytes_received, info.Bytes_acked, info.Notsent_bytes, info.Unacked, info.Lost, info.Total_retrans, info.Backoff, info.Probes, info.Rto, info.Snd_cwnd, memory())
}

// memory is the memory that TCP has on this machine, in pages, for all network namespaces together, and its limits:
// beyond the last one the kernel drops packets that come in.
func memory() string {
	used, _ := os.ReadFile("/proc/net/sockstat")
	limits, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_mem")
	for line := range strings.Lines(string(used)) {
		if strings.HasPrefix(line, "TCP:") {
			return fmt.Sprintf("%s; tcp_mem %s", strings.TrimSpace(line), strings.Join(strings.Fields(string(limits)), " "))
		}
	}
	return "TCP's memory is unknown"
}
