// Package systemd is the protocol between a service and systemd: listening sockets that are
// passed to the process (sd_listen_fds(3)), and notifications of its state (sd_notify(3)).
//
// Both read their environment variables once and remove them, so that children do not take the variables for their own.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/file"
)

// A Notifier reports the state of the process to the service manager. The zero value and nil
// report nothing. It is safe for concurrent use; each call sends one datagram.
type Notifier struct {
	address  *net.UnixAddr // nil: nothing is sent
	watchdog time.Duration
}

// NewNotifier takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the environment and
// unsets them. Without NOTIFY_SOCKET it returns a Notifier that sends nothing. The error is
// about values that cannot be used; the Notifier returned with it uses the others.
func NewNotifier() (*Notifier, error) {
	n := &Notifier{}
	path := os.Getenv("NOTIFY_SOCKET")
	interval, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		err = fmt.Errorf("activation: watchdog: %w", err)
	}
	n.watchdog = interval
	err = errors.Join(err, os.Unsetenv("NOTIFY_SOCKET"))
	switch {
	case path == "":
	case path[0] == '/' || path[0] == '@':
		n.address = &net.UnixAddr{Name: path, Net: "unixgram"}
	default:
		err = errors.Join(err, fmt.Errorf("activation: NOTIFY_SOCKET %q: only paths and abstract unix sockets are supported", path))
	}
	return n, err
}

// Enabled reports whether notifications are sent.
func (n *Notifier) Enabled() bool { return n != nil && n.address != nil }

// Ready reports that the process serves, or that reloading is over, with a status in one line,
// which may be empty.
func (n *Notifier) Ready(status string) error {
	return n.send(daemon.SdNotifyReady, statusLine(status))
}

// Reloading says that the configuration is read again; Ready says when that is
// over, whether it worked or not (Type=notify-reload of systemd.service(5)).
func (n *Notifier) Reloading() error {
	return n.send(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
}

// Stopping says that the process is about to end. The manager gives it at least the time within, even if
// TimeoutStopSec= is less.
func (n *Notifier) Stopping(within time.Duration) error {
	return n.send(daemon.SdNotifyStopping, extend(within))
}

// Status reports a status in one line, for systemctl status.
func (n *Notifier) Status(line string) error { return n.send(statusLine(line)) }

// WatchdogInterval is how long the manager waits for a sign of life before it
// ends the process; 0: for ever.
func (n *Notifier) WatchdogInterval() time.Duration {
	if !n.Enabled() {
		return 0
	}
	return n.watchdog
}

// Watchdog calls alive twice in each WatchdogInterval, until ctx is done, and notifies each time that alive returns
// nil. The context of alive ends when the next notification is due. Watchdog returns at once if there is no interval.
// Errors of alive and of sending are passed to failed.
func (n *Notifier) Watchdog(ctx context.Context, alive func(context.Context) error, failed func(error)) {
	interval := n.WatchdogInterval() / 2
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := n.sign(ctx, interval, alive); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Notifier) sign(ctx context.Context, within time.Duration, alive func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := alive(ctx); err != nil {
		return fmt.Errorf("activation: the watchdog was not notified, because the process did not respond: %w", err)
	}
	return n.send(daemon.SdNotifyWatchdog)
}

// statusLine is empty for an empty status; a line break would begin another
// assignment.
func statusLine(status string) string {
	if status == "" {
		return ""
	}
	return "STATUS=" + display.Text(strings.ReplaceAll(status, "\n", " "))
}

func extend(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// send sends the assignments that are not empty.
func (n *Notifier) send(assignments ...string) error {
	if !n.Enabled() {
		return nil
	}
	var state strings.Builder
	for _, a := range assignments {
		if a != "" {
			state.WriteString(a + "\n")
		}
	}
	conn, err := file.Change(n.address.Name, func() (*net.UnixConn, error) { return net.DialUnix("unixgram", nil, n.address) }, func(late *net.UnixConn) { late.Close() })
	if err != nil {
		return fmt.Errorf("activation: notify: %w", err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("activation: notify: %w", err)
	}
	if _, err := conn.Write([]byte(state.String())); err != nil {
		return fmt.Errorf("activation: notify: %w", err)
	}
	return nil
}

// ErrNoSocket is wrapped by the error of [Sockets.Take] if the process was not
// given a socket of that name.
var ErrNoSocket = errors.New("no such socket was passed")

// Sockets are the listening sockets that the process was started with. It owns
// their descriptors until Close. It is not safe for concurrent use.
type Sockets struct {
	files []*os.File // the name of each is its FileDescriptorName; owned
	taken map[string]bool
}

// Receive takes the sockets that LISTEN_FDS names, if LISTEN_PID is this process, and unsets
// both and LISTEN_FDNAMES. It is called once, before the process opens descriptors and before
// it starts children. The sockets do not pass to children.
func Receive() *Sockets {
	return &Sockets{files: activation.Files(true), taken: map[string]bool{}}
}

// Names lists the names under which sockets were passed, sorted, each once. A socket without a FileDescriptorName= has
// the name LISTEN_FD_3 and so on.
func (s *Sockets) Names() []string {
	var names []string
	for _, f := range s.files {
		names = append(names, f.Name())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Take returns a listener for each socket of that name, in the order of their descriptors. The caller closes the
// listeners. This leaves the sockets open: the kernel queues connections, and Take may be called again, for example
// when a configuration has dropped a listener and gets it back. If one of the sockets is no listening stream socket,
// Take returns an error and no listener.
func (s *Sockets) Take(name string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, f := range s.files {
		if f.Name() != name {
			continue
		}
		l, err := net.FileListener(f)
		if err == nil && !listens(f) {
			l.Close()
			err = syscall.EINVAL
		}
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, fmt.Errorf("systemd:%s: descriptor %d is not a listening stream socket: %w", name, f.Fd(), err)
		}
		listeners = append(listeners, l)
	}
	if listeners == nil {
		return nil, fmt.Errorf("systemd:%s: %w: %s", name, ErrNoSocket, s.instead())
	}
	s.taken[name] = true
	return listeners, nil
}

// listens reports whether clients can connect to a socket (SO_ACCEPTCONN, socket(7)).
func listens(f *os.File) (yes bool) {
	c, err := f.SyscallConn()
	if err != nil {
		return false
	}
	_ = c.Control(func(fd uintptr) {
		n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		yes = err == nil && n != 0
	})
	return yes
}

// NameAt returns the name of the first socket with an address for which match returns true, or "".
func (s *Sockets) NameAt(match func(net.Addr) bool) string {
	for _, f := range s.files {
		if l, err := net.FileListener(f); err == nil {
			l.Close()
			if match(l.Addr()) {
				return f.Name()
			}
		}
	}
	return ""
}

// instead suggests the names that there are.
func (s *Sockets) instead() string {
	if len(s.files) == 0 {
		return "systemd passed none: start the service by a socket unit with FileDescriptorName="
	}
	return "write one of " + strings.Join(s.Names(), ", ") + ", or set FileDescriptorName= in the socket unit"
}

// Unused lists the names that were never taken, sorted.
func (s *Sockets) Unused() []string {
	return slices.DeleteFunc(s.Names(), func(name string) bool { return s.taken[name] })
}

// Close closes the process's descriptors of the sockets; listeners that Take has returned stay open.
func (s *Sockets) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	s.files = nil
	return errors.Join(errs...)
}
