package relay

import (
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// tcpAborted looks for a reset whose error (sk_err) a write has collected:
// tcp_reset leaves the socket in TCP_CLOSE, and a read then returns 0
// (net/ipv4/tcp.c, tcp_recvmsg_locked). A FIN leaves it in CLOSE_WAIT, or, if we
// have sent ours, in states that may reach TCP_CLOSE as well; but then no write
// was left to collect an error.
func (l *legState) tcpAborted(fd int) bool {
	state, err := sys.TCPState(fd)
	return err == nil && state == sys.TCP_CLOSE && !l.shut.Load()
}

// aborted is tcpAborted for the socket beneath c, if there is one, or a write of
// ours that has failed.
func (l *legState) aborted(c any) bool {
	if l == nil {
		return false
	}
	if l.gone.Load() {
		return true
	}
	sc, ok := innermost(c).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	aborted := false
	_ = raw.Control(func(fd uintptr) { aborted = l.tcpAborted(int(fd)) })
	return aborted
}
