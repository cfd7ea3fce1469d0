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

// stillPatience is how long a connection may deliver nothing. While the kernel drops packets, for lack of room
// in a queue or of memory for TCP, each pause of the sender is twice as long as the previous one: up to 6 s on
// a machine with ten runnable threads for each CPU.
const stillPatience = 2 * time.Minute

// A Moving is the reading side of a connection that may take any time as long as bytes come: a Read fails if
// none have come for two minutes. It changes the read deadline of the connection, which still belongs to the
// caller.
type Moving struct{ *net.TCPConn }

// Read reads from the connection.
func (m Moving) Read(b []byte) (int, error) {
	if err := m.SetReadDeadline(time.Now().Add(stillPatience)); err != nil {
		return 0, err
	}
	return m.TCPConn.Read(b)
}

// Account returns the kernel's account of a connection, and of TCP's memory, for the error of a test that
// misses bytes. It shows whether a program neither reads nor writes, or the kernel cannot deliver.
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

// memory returns the memory in pages that TCP has on this machine, for all network namespaces together, and its
// limits: beyond the last one the kernel drops incoming packets.
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
