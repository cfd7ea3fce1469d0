package vecio

import (
	"errors"
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// A cork sets the options of a writer's TCP socket; on anything else it does nothing.
//
// Invariant: on is true from before TCP_CORK is set until after it is cleared. A writer
// clears it when a flush ends well and when one fails, when a deadline passes, and in
// Close and Reset; so the kernel keeps nothing back after any of them.
type cork struct {
	fd  int             // borrowed from the writer's caller; not used with raw
	raw syscall.RawConn // lends the descriptor for the length of a callback; nil: fd

	tcp bool // the socket has these options
	on  bool

	// The function for Control, made once: a closure would be allocated each time.
	lent  func(fd uintptr)
	work  func(c *cork, fd int) error
	value int
	err   error

	corked int64 // how often it was set
}

// open sets TCP_NODELAY, and finds out by that whether this is a TCP socket. The
// error is that of a descriptor which is none.
func (c *cork) open(fd int, raw syscall.RawConn) error {
	*c = cork{fd: fd, raw: raw}
	if raw != nil {
		c.lent = func(fd uintptr) { c.err = c.work(c, int(fd)) }
	}
	err := c.do(setNoDelay)
	var errno syscall.Errno
	if err != nil && (!errors.As(err, &errno) || errno == syscall.EBADF) {
		return os.NewSyscallError("setsockopt", err)
	}
	c.tcp = err == nil
	return nil
}

// do runs work on the descriptor. It does not wait, and works after a deadline too.
func (c *cork) do(work func(c *cork, fd int) error) error {
	if c.raw == nil {
		return work(c, c.fd)
	}
	c.work = work
	if err := c.raw.Control(c.lent); err != nil {
		return err
	}
	return c.err
}

// hold has the kernel keep bytes that do not fill a segment.
func (c *cork) hold() {
	if !c.tcp || c.on {
		return
	}
	c.on = true
	c.corked++
	c.value = 1
	_ = c.do(setCork) // a socket that cannot be corked sends more segments, no less data
}

// draw lets everything go. It fails only if the connection was closed, and then there
// is nothing left to let go.
func (c *cork) draw() {
	if !c.on {
		return
	}
	c.value = 0
	_ = c.do(setCork)
	c.on = false
}

// push sends the bytes that the last call has left behind by MSG_MORE, if no other call
// follows: setting TCP_NODELAY sends them (net/ipv4/tcp.c, __tcp_sock_set_nodelay).
func (c *cork) push() {
	c.draw()
	if c.tcp {
		_ = c.do(setNoDelay)
	}
}

// segment is how many bytes the segments of the connection have now, or 0.
func (c *cork) segment() int {
	if !c.tcp || c.do(readSegment) != nil {
		return 0
	}
	return c.value
}

func setNoDelay(_ *cork, fd int) error {
	return sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1)
}

func setCork(c *cork, fd int) error {
	return sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_CORK, c.value)
}

func readSegment(c *cork, fd int) error {
	var info sys.TCPInfo
	err := sys.GetTCPInfo(fd, &info)
	c.value = int(info.Snd_mss)
	return err
}
