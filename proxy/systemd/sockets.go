package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
)

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

// Names lists the names that sockets were passed under, sorted, each once. One
// without a FileDescriptorName= is LISTEN_FD_3 and so on.
func (s *Sockets) Names() []string {
	var names []string
	for _, f := range s.files {
		names = append(names, f.Name())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Take returns a listener for each socket of that name, in the order of their
// descriptors. They are the caller's to close, which leaves the sockets
// themselves open: connections are queued by the kernel, and Take may be called
// again, as a configuration that drops a listener and gets it back does. If one is
// no stream socket that listens, the error says so and none is returned.
func (s *Sockets) Take(name string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, f := range s.files {
		if f.Name() != name {
			continue
		}
		l, err := net.FileListener(f)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, fmt.Errorf("systemd:%s: descriptor %d is no stream socket that listens: %w", name, f.Fd(), err)
		}
		listeners = append(listeners, l)
	}
	if listeners == nil {
		return nil, fmt.Errorf("systemd:%s: %w: %s", name, ErrNoSocket, s.instead())
	}
	s.taken[name] = true
	return listeners, nil
}

// instead suggests the names that there are.
func (s *Sockets) instead() string {
	if len(s.files) == 0 {
		return "none was: start the service by a socket unit with FileDescriptorName="
	}
	return "write one of " + strings.Join(s.Names(), ", ") + ", or set FileDescriptorName= in the socket unit"
}

// Unused lists the names that were never taken, sorted.
func (s *Sockets) Unused() []string {
	return slices.DeleteFunc(s.Names(), func(name string) bool { return s.taken[name] })
}

// Close closes the process's descriptors of the sockets; listeners that were
// taken stay.
func (s *Sockets) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	s.files = nil
	return errors.Join(errs...)
}
