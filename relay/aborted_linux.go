package relay

import (
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// tcpAborted looks for a reset whose error (sk_err) a write has collected: tcp_reset leaves
// the socket in TCP_CLOSE, and a read then returns 0 (net/ipv4/tcp.c, tcp_recvmsg_locked). A
// FIN leaves it in CLOSE_WAIT, or, if we have sent ours, in states that may reach TCP_CLOSE as
// well; but then no write was left to collect an error. If others may have ended the
// connection beside us, as that of a Copy, TCP_CLOSE means nothing.
func (l *legState) tcpAborted(fd int) bool {
	if !l.ours {
		return false
	}
	state, err := sys.TCPState(fd)
	return err == nil && state == sys.TCP_CLOSE && !l.shut.Load() // which is set before the state changes, so it is read after it
}

// look finds out whether the owner of c has ended it before. In TCP_CLOSE both
// sides have, or a reset has come, whose error is still to be read: poll(2) shows
// that (net/ipv4/tcp.c, tcp_poll), or else the owner has read it and knows.
func (l *legState) look(c any) {
	withSocket(c, func(fd int) {
		switch state, err := sys.TCPState(fd); {
		case err != nil:
		case state == sys.TCP_FIN_WAIT1, state == sys.TCP_FIN_WAIT2, state == sys.TCP_CLOSING, state == sys.TCP_LAST_ACK,
			state == sys.TCP_CLOSE && !sys.HasError(fd):
			l.over = true
			l.shut.Store(true)
		}
	})
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
	aborted := false
	withSocket(c, func(fd int) { aborted = l.tcpAborted(fd) })
	return aborted
}

// withSocket calls f with the descriptor of the socket beneath c, if there is one.
func withSocket(c any, f func(fd int)) {
	sc, ok := innermost(c).(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
