package server

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Reasons of a socket that has another congestion control than it was given: the kernel took it all the
// same, or it could not be had when the socket was made.
var (
	errOther  = errors.New("the kernel took it, and uses another one")
	errFormer = errors.New("it was refused, and is to be had now: reload")
)

// adaptCongestion logs the congestion control that a listening socket has in place of that of the
// configuration, and gives it that of the system where it was set before and is not any more.
func (s *Server) adaptCongestion(socket *listenSocket) {
	wanted, before := socket.cfg.Socket.Congestion, socket.congestion
	if socket.congestion = wanted; !socket.listener.TCP() {
		return
	}
	if wanted != "" {
		if used, err := socket.congestionNow(); err != nil {
			s.log.Warn("socket.congestion is not applied", "listener", socket.owner, "address", socket.listener.Addr(),
				"congestion", wanted, "used", used, "error", err)
		}
		return
	}
	if before == "" {
		return
	}
	usual, err := sys.DefaultCongestion()
	if err == nil {
		err = os.NewSyscallError("setsockopt TCP_CONGESTION", sys.SetCongestion(socket.fd, usual))
	}
	s.logUnchanged(socket, err)
}

// congestionNow returns the congestion control of a listening socket of TCP, and the reason for which
// that is not the one of the configuration.
func (socket *listenSocket) congestionNow() (used string, err error) {
	wanted := socket.cfg.Socket.Congestion
	used, err = sys.Congestion(socket.fd)
	switch {
	case err != nil:
		return "", os.NewSyscallError("getsockopt TCP_CONGESTION", err)
	case used == wanted:
		return used, nil
	}
	tried, err := sockopt.TryCongestion(wanted)
	if err = notUsed(wanted, tried, err); err == nil {
		err = errFormer
	}
	return used, err
}

// notUsed returns the reason for which a new socket has not the congestion control that it was given: the
// one that it has, and the error of that. Nil: it has it.
func notUsed(wanted, used string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("this kernel has no congestion control %s: %w", wanted, err)
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("the congestion control %s takes CAP_NET_ADMIN: %w", wanted, err)
	case err == nil && used != wanted:
		return errOther
	}
	return err
}

// congestionStatus is the congestion control that connections to the upstream's endpoints have: that of a
// socket that is made to find out. Nil: the file names none.
func (u *upstream) congestionStatus() *admin.Congestion {
	if u.congestion == nil {
		return nil
	}
	name := u.congestion.Name()
	used, err := sockopt.TryCongestion(name)
	return &admin.Congestion{Configured: name, Used: used, Error: textOf(notUsed(name, used, err)), Refused: u.congestion.Refused()}
}

// logCongestion logs that connections to the upstream's endpoints do not have the congestion control of the
// configuration, if they have not.
func (s *Server) logCongestion(u *upstream) {
	if st := u.congestionStatus(); st != nil && st.Error != "" {
		s.log.Warn("socket.congestion is not applied", "upstream", u.cfg.Name, "congestion", st.Configured, "used", st.Used, "error", st.Error)
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
