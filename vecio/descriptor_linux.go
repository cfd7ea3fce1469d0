package vecio

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
)

// A kernel sends gathered pieces by one system call, and returns raw errors.
type kernel interface {
	// send gets pieces, none of them empty, and for a stream at most IOV_MAX, and flags such as MSG_MORE. It
	// returns how many bytes the kernel has taken.
	send(fd int, pieces []sys.Iovec, flags int) (int, error)
	// sendCopy sends a buffer of our own. It is not in a mapped file, so the call is made without the
	// scheduler.
	sendCopy(fd int, p []byte, flags int) (int, error)
	name() string
}

// socket never waits, even if another holder of the descriptor has made it blocking, and raises no SIGPIPE.
type socket struct{}

func (socket) name() string { return "sendmsg" }

func (socket) send(fd int, pieces []sys.Iovec, flags int) (int, error) {
	return sys.Sendmsg(fd, pieces, flags|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
}

func (socket) sendCopy(fd int, p []byte, flags int) (int, error) {
	return sys.Send(fd, p, flags|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
}

// file is a descriptor other than a socket: flags have no meaning for it.
type file struct{}

func (file) name() string { return "writev" }

func (file) send(fd int, pieces []sys.Iovec, _ int) (int, error) {
	return sys.WritevVector(fd, pieces)
}

func (file) sendCopy(fd int, p []byte, _ int) (int, error) { return sys.Write(fd, p) }

// A descriptor is a file descriptor and its kind.
type descriptor struct {
	kernel kernel
	stream bool // a call may end anywhere; otherwise each call is a message
	single bool // send one piece in each call, to find the bad one
}

// examine finds out the kind of a descriptor.
func examine(fd int) (descriptor, error) {
	kind, err := sys.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE)
	switch err {
	case nil:
		return descriptor{kernel: socket{}, stream: kind == syscall.SOCK_STREAM}, nil
	case syscall.ENOTSOCK:
		return descriptor{kernel: file{}, stream: true}, nil
	}
	return descriptor{}, os.NewSyscallError("getsockopt", err)
}

// push writes to fd until at most low bytes are pending. It returns EAGAIN only if the kernel has, so that an
// edge will come.
func (d *descriptor) push(w *Writer, fd int, low int64) error {
	for w.appended-w.written > low {
		offered, n, err := d.once(w, fd)
		w.stats.Calls++
		if n > 0 {
			if n < offered {
				w.stats.Short++
			}
			w.wrote(n)
			continue
		}
		switch {
		case err == syscall.EINTR:
			w.stats.Retried++
		case err == syscall.EAGAIN:
			w.stats.Blocked++
			return err
		case err == syscall.EFAULT && d.stream && !d.single:
			// TCP rejects all bytes that would share a segment with the bad piece, so the good pieces before it
			// are sent alone.
			d.single = true
		case err == nil:
			return io.ErrNoProgress
		default:
			return err
		}
	}
	return nil
}

// once makes one call.
func (d *descriptor) once(w *Writer, fd int) (offered, n int, err error) {
	spans, flags := d.next(w)
	if w.q.copied() {
		n, err = d.kernel.sendCopy(fd, spans[0], flags)
		return len(spans[0]), n, err
	}
	v := leaseVector(len(spans))
	offered = v.fill(spans)
	n, err = d.kernel.send(fd, v.used, flags)
	v.giveBack()
	return offered, n, err
}

// next returns the spans for the next call; for a stream, as many as one call takes. If another call follows at
// once, flags lets the kernel hold a segment until it is full.
func (d *descriptor) next(w *Writer) (spans [][]byte, flags int) {
	spans = w.q.spans.all()
	most := len(spans)
	switch {
	case d.single:
		most = 1
	case d.stream:
		most = min(most, sys.IOV_MAX)
	}
	if most < len(spans) && d.stream {
		flags |= sys.MSG_MORE
		w.cork.hold()
	}
	return spans[:most], flags
}

// A conn waits with the runtime's poller.
type conn struct {
	descriptor
	raw syscall.RawConn
	try func(fd uintptr) bool // c.step, made once

	w   *Writer // for the present drain
	low int64   // drain's bound
	err error
}

func newConn(c syscall.Conn) (*conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	n := &conn{raw: raw}
	n.try = n.step
	var examined error
	if err := raw.Control(func(fd uintptr) { n.descriptor, examined = examine(int(fd)) }); err != nil {
		return nil, err
	}
	return n, examined
}

func (c *conn) drain(w *Writer, low int64) (string, error) {
	c.w, c.low, c.err = w, low, nil
	err := sys.Closed(c.raw.Write(c.try))
	c.w = nil
	if err == nil && c.err != nil {
		err = os.NewSyscallError(c.kernel.name(), c.err)
	}
	return c.kernel.name(), err
}

// step is called with the descriptor, which is not closed meanwhile. It may return false, to wait, only after
// EAGAIN: readiness that was reported before is forgotten.
func (c *conn) step(fd uintptr) bool {
	c.err = c.push(c.w, int(fd), c.low)
	if c.err == syscall.EAGAIN {
		c.err = nil
		return false
	}
	return true
}

// A borrowed descriptor is never waited for.
type borrowed struct {
	descriptor
	fd int // the caller's
}

func (b *borrowed) drain(w *Writer, low int64) (string, error) {
	err := b.push(w, b.fd, low)
	switch err {
	case nil:
		return "", nil
	case syscall.EAGAIN:
		return "", ErrBlocked
	}
	return b.kernel.name(), os.NewSyscallError(b.kernel.name(), err)
}

// openOptions sets the options of the destination's socket.
func (w *Writer) openOptions() error {
	switch out := w.out.(type) {
	case *conn:
		return w.cork.open(-1, out.raw)
	case *borrowed:
		return w.cork.open(out.fd, nil)
	}
	return nil
}

// open makes dst the destination.
func (w *Writer) open(dst io.Writer) error {
	switch c := dst.(type) {
	case *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn, *os.File:
		n, err := newConn(c.(syscall.Conn))
		if err != nil {
			return fmt.Errorf("%T: %w", dst, err)
		}
		w.path, w.out, w.whole = PathConn, n, !n.stream
	default:
		w.path, w.out = PathCoalesced, coalescer{dst}
	}
	return nil
}

func (w *Writer) openSocket(fd int) error {
	d, err := examine(fd)
	if err == nil {
		err = nonblocking(fd)
	}
	if err != nil {
		return fmt.Errorf("descriptor %d: %w", fd, err)
	}
	w.path, w.out, w.whole = PathSocket, &borrowed{descriptor: d, fd: fd}, !d.stream
	return nil
}

var errMayBlock = errors.New("it may block: set O_NONBLOCK first")

func nonblocking(fd int) error {
	flags, err := sys.GetFl(fd)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	if flags&syscall.O_NONBLOCK == 0 {
		return errMayBlock
	}
	return nil
}

// A vector is an array of struct iovec for one call.
type vector struct {
	used  []sys.Iovec // array, unless more is needed
	array [sys.IOV_MAX]sys.Iovec
}

var vectors = sync.Pool{New: func() any { return new(vector) }}

// leaseVector returns a vector with room for n views. The kernel refuses more than IOV_MAX.
func leaseVector(n int) *vector {
	v := vectors.Get().(*vector)
	if v.used = v.array[:0]; n > len(v.array) {
		v.used = make([]sys.Iovec, 0, n)
	}
	return v
}

// fill makes a view of each span, and returns their number of bytes.
func (v *vector) fill(spans [][]byte) (total int) {
	v.used = v.used[:len(spans)]
	for i, p := range spans {
		view(&v.used[i], p)
		total += len(p)
	}
	return total
}

// giveBack clears the views, and returns the vector.
func (v *vector) giveBack() {
	clear(v.used)
	v.used = nil
	vectors.Put(v)
}

// view turns a slice into an address and a length, by the three rules in the package's documentation: the queue
// keeps the slice (1), the length is the slice's own (2), and the queue gives nothing back before the bytes are
// counted (3).
func view(to *sys.Iovec, p []byte) {
	to.Base = unsafe.SliceData(p)
	to.SetLen(len(p))
}

// A cork sets the options of a writer's TCP socket; on anything else it does nothing.
//
// Invariant: on is true from before TCP_CORK is set until after it is cleared. A writer clears it when a flush
// has ended, well or not, when a deadline passes, and in Close and Reset; so the kernel keeps nothing back
// after any of them.
type cork struct {
	fd  int             // borrowed from the writer's caller; not used if raw is set
	raw syscall.RawConn // lends the descriptor during a callback; nil: use fd

	tcp bool // the descriptor is a TCP socket
	on  bool

	// The callback of Control, made once: a closure would be allocated each time.
	lent  func(fd uintptr)
	work  func(c *cork, fd int) error
	value int
	err   error

	corked int64 // how often it was set on
}

// open sets TCP_NODELAY, which also shows whether this is a TCP socket. For a number that is no descriptor it
// returns the kernel's error.
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
		return sys.Closed(err)
	}
	return c.err
}

// hold makes the kernel keep bytes that do not fill a segment.
func (c *cork) hold() {
	if !c.tcp || c.on {
		return
	}
	c.on = true
	c.corked++
	c.value = 1
	_ = c.do(setCork) // a socket that cannot be corked sends more segments, not less data
}

// draw lets all bytes go. It fails only if the connection was closed, and then nothing is left.
func (c *cork) draw() {
	if !c.on {
		return
	}
	c.value = 0
	_ = c.do(setCork)
	c.on = false
}

// push sends bytes that MSG_MORE has left behind when no other call follows: setting TCP_NODELAY sends them
// (net/ipv4/tcp.c, __tcp_sock_set_nodelay).
func (c *cork) push() {
	c.draw()
	if c.tcp {
		_ = c.do(setNoDelay)
	}
}

// segment returns the present size of the connection's segments in bytes, or 0.
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
