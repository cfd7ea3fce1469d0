package loop

import (
	"context"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/pathcall"
)

// An Address is where to connect: to the unix socket at Path, or if that is empty to AddrPort by TCP.
type Address struct {
	AddrPort netip.AddrPort
	Path     string // @name for a socket in the abstract namespace
}

// DialConfig sets up connecting. A nil *DialConfig means the defaults.
type DialConfig struct {
	// Timeout is how long to wait for the connection; 0 leaves it to the kernel,
	// which is about two minutes for TCP (tcp_syn_retries, tcp(7)).
	Timeout time.Duration

	// Source is the local address to connect from, if valid. The port is chosen at the connect
	// (IP_BIND_ADDRESS_NO_PORT, ip(7)), so that each target can have as many connections from Source as there are
	// ports.
	Source netip.Addr

	// Control is called with the new socket before it is bound or connected, to set options; network is "tcp4",
	// "tcp6" or "unix". Control does not own the socket, which must stay non-blocking. nil: nothing is called.
	Control func(fd int, network string) error
}

// A Connector is notified of the end of a [Dial].
type Connector interface {
	// Connected is called on the loop's goroutine, once for each dial, possibly from within [Loop.Connect].
	// Without an error fd is a connected socket that the connector now owns. It is registered with the loop as id:
	// give it a handler by [Loop.Hand]. events are the events so far. An error is an *os.SyscallError,
	// os.ErrDeadlineExceeded, or the error of [DialConfig.Control]; then the socket is closed. d may be used for
	// the next dial.
	Connected(d *Dial, fd int, id ID, events Events, err error)
}

// A Dial is one attempt to connect. It is made to be part of a larger struct: the zero value is ready for
// [Loop.Connect]. It must not be copied while it waits, and belongs to the loop's goroutine.
type Dial struct {
	loop      *Loop
	connector Connector // nil unless it waits
	timer     Timer     // until the timeout, or the next attempt
	retry     *retry    // nil unless it waits for room in a unix listener's queue, or for its path
	id        ID
	fd        int32 // owned while it waits
	which     uint8
	lone      uint16 // the target's port, if the kernel may choose it as the socket's own port too; otherwise 0
}

// A retry is a dial to a unix socket that has not connected at once. If the queue is full, the kernel does not report room, so
// the dial tries again now and then.
type retry struct {
	to       Address
	deadline int64 // loop clock; 0: none
	pause    time.Duration
	lookup   *lookup // nil unless a goroutine connects
}

const (
	minRetryPause = time.Millisecond
	maxRetryPause = 64 * time.Millisecond
)

// localPaths has the paths of unix sockets that were last found to be on local file systems. Each has a time, by the
// clock of the loops, at which it is looked at again: a file system that does not answer may be mounted meanwhile.
var localPaths struct {
	mu    sync.RWMutex
	until map[string]int64 // guarded by mu
}

const (
	localTime = time.Minute
	mostPaths = 1024
)

// local reports whether the loop may call connect(2) for a unix socket: the call waits for no file system, or
// the loop is closed and may wait.
func (l *Loop) local(path string) bool {
	if path[0] == '@' || !l.usable.Load() {
		return true
	}
	localPaths.mu.RLock()
	defer localPaths.mu.RUnlock()
	until, ok := localPaths.until[path]
	return ok && l.Now() < until
}

func (l *Loop) noteLocal(path string) {
	localPaths.mu.Lock()
	defer localPaths.mu.Unlock()
	if localPaths.until == nil || len(localPaths.until) == mostPaths {
		localPaths.until = make(map[string]int64)
	}
	localPaths.until[path] = l.Now() + int64(localTime)
}

// Connect begins to connect, and notifies c of the end. d must not be waiting already. The connection's [Handler] is
// called with which. The loop does not wait for the file system of a path: a goroutine connects, one of
// at most four for a directory, unless all parts of the path were found on this machine's disks within the last
// minute. A symbolic link is followed only if it belongs to root, to the user of this process or to the owner of the
// unix socket. A socket that the kernel has connected to itself is refused (ECONNREFUSED): nothing listens on that
// port.
func (l *Loop) Connect(d *Dial, which uint8, to Address, cfg *DialConfig, c Connector) {
	if cfg == nil {
		cfg = &DialConfig{}
	}
	to.AddrPort = netip.AddrPortFrom(to.AddrPort.Addr().Unmap(), to.AddrPort.Port())
	fd, err := openSocket(&to, cfg)
	d.loop, d.connector, d.which, d.fd, d.lone = l, c, which, int32(fd), 0
	if to.Path == "" && ephemeral(to.AddrPort.Port()) {
		d.lone = to.AddrPort.Port()
	}
	if err != nil {
		d.fail(err)
		return
	}
	if cfg.Timeout > 0 {
		l.Arm(&d.timer, (*dialTimer)(d), cfg.Timeout)
	}
	if to.Path != "" && !l.local(to.Path) {
		d.lookUp(newRetry(to, cfg.Timeout, l.Now()))
		return
	}
	err = connect(fd, &to)
	if err == syscall.EAGAIN && to.Path != "" {
		d.retryLater(newRetry(to, cfg.Timeout, l.Now()))
		return
	}
	d.begun(err)
}

func newRetry(to Address, timeout time.Duration, now int64) *retry {
	r := &retry{to: to, pause: minRetryPause}
	if timeout > 0 {
		r.deadline = now + int64(timeout)
	}
	return r
}

// Cancel ends a waiting dial: it closes the socket, and does not notify the connector. If the connection has
// been made meanwhile, it is reset, because its peer must not take this for an orderly end. Cancel does nothing
// if the dial has ended.
func (d *Dial) Cancel() {
	if d.connector != nil {
		d.release()
		if d.fd >= 0 {
			abortOnClose(int(d.fd))
		}
		d.close()
	}
}

// begun continues after connect(2): if the connection is made or being made, it waits for events of the socket.
func (d *Dial) begun(err error) {
	if err != nil && err != syscall.EINPROGRESS {
		d.fail(os.NewSyscallError("connect", err))
		return
	}
	id, addErr := d.loop.Add(int(d.fd), d.which, (*dialHandler)(d))
	if addErr != nil {
		d.fail(addErr)
		return
	}
	d.id = id
	if err == nil {
		d.done(Writable)
	}
}

// done hands the connection to the connector.
func (d *Dial) done(events Events) {
	if d.lone != 0 && toItself(int(d.fd), d.lone) {
		abortOnClose(int(d.fd)) // an orderly close would keep the port from its server for a minute (TIME-WAIT)
		d.fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
		return
	}
	c, fd, id := d.release(), d.fd, d.id
	d.fd, d.id = -1, 0
	d.loop.Hand(id, noHandler{}) // the connector may use d for another dial before it hands the socket on
	c.Connected(d, int(fd), id, events, nil)
}

// noHandler is the handler of a connection until its connector hands it on.
type noHandler struct{}

func (noHandler) Ready(uint8, Events) {}

// fail closes the socket and notifies the connector of the error.
func (d *Dial) fail(err error) {
	c := d.release()
	d.close()
	c.Connected(d, -1, 0, 0, err)
}

// release ends the wait, and returns the connector.
func (d *Dial) release() Connector {
	if d.retry != nil && d.retry.lookup != nil {
		d.fd = d.retry.lookup.giveUp()
	}
	c := d.connector
	d.connector, d.retry = nil, nil
	d.loop.Disarm(&d.timer)
	return c
}

func (d *Dial) close() {
	d.loop.Drop(d.id)
	d.id = 0
	if d.fd >= 0 {
		closeSocket(int(d.fd))
		d.fd = -1
	}
}

func (d *Dial) retryLater(r *retry) {
	d.retry = r
	pause := r.pause
	if r.deadline != 0 {
		pause = max(min(pause, time.Duration(r.deadline-d.loop.Now())), 0)
	}
	r.pause = min(2*r.pause, maxRetryPause)
	d.loop.Arm(&d.timer, (*dialTimer)(d), pause)
}

// again tries to connect again, in case the queue has room.
func (d *Dial) again(r *retry) {
	if d.loop.local(r.to.Path) {
		d.tried(r, connect(int(d.fd), &r.to))
		return
	}
	if r.deadline != 0 {
		d.loop.Arm(&d.timer, (*dialTimer)(d), max(time.Duration(r.deadline-d.loop.Now()), 0))
	}
	d.lookUp(r)
}

func (d *Dial) tried(r *retry, err error) {
	switch {
	case err != syscall.EAGAIN:
		d.begun(err)
	case r.deadline != 0 && d.loop.Now() >= r.deadline:
		d.fail(os.ErrDeadlineExceeded)
	default:
		d.retryLater(r)
	}
}

// A lookup is a connect(2) on a goroutine, because its path may be on a file system that does not answer.
type lookup struct {
	dial   *Dial // nil once it was given up; belongs to the loop's goroutine
	fd     int32 // owned by the goroutine until over is set, and then by whoever finds it set
	over   atomic.Bool
	cancel context.CancelFunc
}

// lookUp connects on a goroutine, which owns the socket meanwhile.
func (d *Dial) lookUp(r *retry) {
	ctx, cancel := context.WithCancel(context.Background())
	u := &lookup{dial: d, fd: d.fd, cancel: cancel}
	r.lookup, d.retry, d.fd = u, r, -1
	l, to := d.loop, r.to
	go func() {
		defer cancel()
		var isLocal bool
		var err error
		_ = pathcall.Do(ctx, to.Path, func() { isLocal, err = localPath(to.Path), connect(int(u.fd), &to) })
		if u.over.Swap(true) {
			closeSocket(int(u.fd))
			return
		}
		_ = l.Post(func() { u.returned(isLocal, err) }) // if the loop is closed, Dial.Cancel closes the socket
	}()
}

func (u *lookup) returned(isLocal bool, err error) {
	d := u.dial
	if d == nil {
		return
	}
	r := d.retry
	r.lookup, d.fd = nil, u.fd
	if isLocal {
		d.loop.noteLocal(r.to.Path)
	}
	d.tried(r, err)
}

// giveUp returns the socket, or -1 if the goroutine will close it.
func (u *lookup) giveUp() int32 {
	u.dial = nil
	u.cancel()
	if u.over.Swap(true) {
		return u.fd
	}
	return -1
}

// dialHandler is a Dial as the handler of its socket.
type dialHandler Dial

// Ready is called when connecting has ended: a TCP socket that has sent its SYN has no event before then
// (net/ipv4/tcp.c, tcp_poll). If connecting failed, SO_ERROR has the reason; otherwise it is not read.
func (h *dialHandler) Ready(_ uint8, events Events) {
	d := (*Dial)(h)
	if events&(Failed|HungUp) != 0 {
		if err := socketError(int(d.fd)); err != nil {
			d.fail(err)
			return
		}
	}
	if events != 0 {
		d.done(events)
	}
}

// dialTimer is a Dial as the owner of its timer, which ends the dial or makes it try again.
type dialTimer Dial

func (t *dialTimer) Expired(*Timer) {
	d := (*Dial)(t)
	if d.retry != nil && d.retry.lookup == nil {
		d.again(d.retry)
		return
	}
	d.fail(os.ErrDeadlineExceeded)
}
