package lane_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// messageSize is that of each message of ends, either way.
const messageSize = 16

// ends are many clients and servers on a thread with descriptors of its own, which wait in system calls: RLIMIT_NOFILE
// bounds each table of descriptors by itself (unshare(2), CLONE_FILES), and they take no memory of this process.
type ends struct {
	t      testing.TB
	calls  chan func() error
	result chan error

	listening int
	at        string // of the servers
	client    []int
	server    []int
	sent      uint32
}

func newEnds(t testing.TB) *ends {
	t.Helper()
	e := &ends{t: t, calls: make(chan func() error), result: make(chan error)}
	go e.serve()
	t.Cleanup(func() { close(e.calls) })
	e.do(func() (err error) {
		if err := syscall.Unshare(syscall.CLONE_FILES); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if e.listening, err = socket(); err != nil {
			return err
		}
		if err := syscall.Bind(e.listening, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		name, err := sys.LocalName(e.listening)
		e.at = name.AddrPort.String()
		return cmp.Or(err, syscall.Listen(e.listening, 16))
	})
	return e
}

// do calls f on the thread.
func (e *ends) do(f func() error) {
	e.t.Helper()
	e.calls <- f
	if err := <-e.result; err != nil {
		e.t.Fatal(err)
	}
}

// socket returns one of TCP that waits for no longer than patience.
func socket() (fd int, err error) {
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = bounded(fd)
	}
	return fd, err
}

func bounded(fd int) error {
	wait := syscall.NsecToTimeval(patience.Nanoseconds())
	return syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait)
}

// connect makes one more client of a listener, and connects to one more server.
func (e *ends) connect(at net.Listener) (a, b *net.TCPConn) {
	e.t.Helper()
	to := netip.MustParseAddrPort(at.Addr().String())
	e.do(func() error {
		fd, err := socket()
		if err != nil {
			return err
		}
		e.client = append(e.client, fd)
		return os.NewSyscallError("connect", syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}))
	})
	near, err := at.Accept()
	if err != nil {
		e.t.Fatal(err)
	}
	far, err := net.Dial("tcp", e.at)
	if err != nil {
		e.t.Fatal(err)
	}
	e.do(func() error {
		fd, _, err := syscall.Accept(e.listening)
		for err == syscall.EINTR {
			fd, _, err = syscall.Accept(e.listening)
		}
		if err != nil {
			return os.NewSyscallError("accept", err)
		}
		e.server = append(e.server, fd)
		return bounded(fd)
	})
	return near.(*net.TCPConn), far.(*net.TCPConn)
}

// exchange has a client and its server send each other a message that no other one is the same as.
func (e *ends) exchange(i int) {
	e.t.Helper()
	e.do(func() error {
		for _, way := range [2][2]int{{e.client[i], e.server[i]}, {e.server[i], e.client[i]}} {
			e.sent++
			message := fmt.Appendf(nil, "%0*d", messageSize, e.sent)
			if _, err := syscall.Write(way[0], message); err != nil {
				return os.NewSyscallError("write", err)
			}
			var got [messageSize]byte
			for n := 0; n < len(got); {
				more, err := syscall.Read(way[1], got[n:])
				if err == syscall.EINTR { // of the runtime's signals: one with a timeout is not begun anew (signal(7))
					continue
				}
				if err != nil || more == 0 {
					return fmt.Errorf("end %d: read of %d bytes after %d: %w", i, more, n, err)
				}
				n += more
			}
			if !bytes.Equal(got[:], message) {
				return fmt.Errorf("end %d: %q in place of %q", i, got, message)
			}
		}
		return nil
	})
}

// serve makes the calls on a thread of their own, for good: the thread ends, and its descriptors with it. It is not the first
// one, which does not end, and whose descriptors are those of /proc/self.
func (e *ends) serve() {
	runtime.LockOSThread()
	if sys.Gettid() == os.Getpid() {
		over := make(chan struct{})
		go func() { defer close(over); e.serve() }()
		<-over
		runtime.UnlockOSThread()
		return
	}
	for f := range e.calls {
		e.result <- f()
	}
}
