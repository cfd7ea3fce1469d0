package loop

import (
	"encoding/binary"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// The bits of Events.
const (
	Readable   Events = sys.EPOLLIN    // there are bytes, an end of file, or connections to accept
	Writable   Events = sys.EPOLLOUT   // there is room, or a connect has ended
	Urgent     Events = sys.EPOLLPRI   // TCP urgent data waits
	PeerClosed Events = sys.EPOLLRDHUP // no more bytes will come than already wait
	Failed     Events = sys.EPOLLERR   // SO_ERROR has the reason
	HungUp     Events = sys.EPOLLHUP   // both ways are shut
)

// The events asked for, beside EPOLLERR and EPOLLHUP, which epoll always reports.
const (
	// edges is for connections and everything else: all, and once.
	edges = sys.EPOLLIN | sys.EPOLLOUT | sys.EPOLLPRI | sys.EPOLLRDHUP | sys.EPOLLET

	// queue is for listeners: it reports as long as connections are queued and, if several
	// loops wait for the same listener, to as few loops as possible. EPOLL_CTL_MOD does not
	// work with it.
	queue = sys.EPOLLIN | sys.EPOLLEXCLUSIVE
)

// A poller is an epoll instance and the events that it has returned last.
type poller struct {
	fd     int // owned; -1 once it is closed
	events []sys.EpollEvent
	coarse bool // epoll_pwait2 is not to be had
}

func (p *poller) open() error {
	fd, err := sys.EpollCreate1()
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	p.fd = fd
	p.events = make([]sys.EpollEvent, batch)
	return nil
}

// close closes the instance. After that another file may get its number, so late calls must not
// find it.
func (p *poller) close() error {
	fd := p.fd
	p.fd = -1
	return os.NewSyscallError("close", sys.Close(fd))
}

// watch adds the mailbox's eventfd, with a slot that no table has. Each write to it
// is an edge.
func (p *poller) watch(fd int) error {
	e := sys.EpollEvent{Events: sys.EPOLLIN | sys.EPOLLET, Fd: -1}
	return os.NewSyscallError("epoll_ctl", sys.EpollCtl(p.fd, sys.EPOLL_CTL_ADD, fd, &e))
}

func (p *poller) add(fd int, id ID, interest uint32) error {
	e := sys.EpollEvent{
		Events: interest,
		Fd:     int32(id.slot()),
		Pad:    int32(id.generation()<<8 | uint32(id.which())),
	}
	return sys.EpollCtl(p.fd, sys.EPOLL_CTL_ADD, fd, &e)
}

func (p *poller) remove(fd int) error {
	return sys.EpollCtl(p.fd, sys.EPOLL_CTL_DEL, fd, &sys.EpollEvent{})
}

// poll collects the events that are there now.
func (p *poller) poll() (int, error) { return sys.EpollPoll(p.fd, p.events) }

// block waits for events for at most timeout nanoseconds, forever if negative. The scheduler
// knows of the wait. A kernel that has no epoll_pwait2, or a sandbox that refuses it, gets
// epoll_wait's milliseconds: the wait may then end up to a millisecond late, and never early.
func (p *poller) block(timeout int64) (int, error) {
	if timeout < 0 {
		return sys.EpollWait(p.fd, p.events, -1)
	}
	if !p.coarse {
		n, err := sys.EpollPwait2(p.fd, p.events, timeout)
		if err != syscall.ENOSYS && err != syscall.EPERM {
			return n, err
		}
		p.coarse = true
	}
	msec := (timeout + int64(time.Millisecond) - 1) / int64(time.Millisecond)
	return sys.EpollWait(p.fd, p.events, int(min(msec, math.MaxInt32)))
}

// rest sleeps for nsec nanoseconds, whatever happens.
func (p *poller) rest(nsec int64) { sys.Nanosleep(nsec) }

func (p *poller) event(i int) (slot, generation uint32, which uint8, events Events) {
	e := &p.events[i]
	data := uint32(e.Pad)
	return uint32(e.Fd), data >> 8, uint8(data), Events(e.Events)
}

// wake makes epoll_wait return. The counter is never read; it is full after 2^64-2
// wake-ups.
func wake(eventfd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = sys.Write(eventfd, one[:])
}

// A netpollWake makes the runtime look at its poller: a goroutine waits there for a descriptor
// that is always ready, and the look that finds this goroutine finds all others too. Until
// then goroutines that are ready run.
type netpollWake struct {
	file    *os.File // an eventfd, owned; nil until it is needed
	raw     syscall.RawConn
	once    func(fd uintptr) (done bool) // made once
	knocked bool
}

// wait returns when the runtime has looked. It does nothing if no descriptor is free.
func (k *netpollWake) wait() {
	if k.file == nil && k.open() != nil {
		return
	}
	k.knocked = false
	_ = k.raw.Read(k.once) // it fails only for files that cannot wait
}

func (k *netpollWake) open() error {
	fd, err := sys.Eventfd()
	if err != nil {
		return err
	}
	k.file = os.NewFile(uintptr(fd), "eventfd")
	if k.raw, err = k.file.SyscallConn(); err != nil {
		return err
	}
	k.once = func(fd uintptr) bool {
		if k.knocked {
			return true
		}
		k.knocked = true
		wake(int(fd)) // an edge, also as it is never read
		return false
	}
	return nil
}

func (k *netpollWake) close() error {
	if k.file == nil {
		return nil
	}
	err := k.file.Close()
	k.file = nil
	return err
}

func threadTime() cpuTime {
	thread := sys.Gettid()
	used, err := sys.ThreadCPUTime()
	if err != nil || sys.Gettid() != thread {
		return cpuTime{}
	}
	return cpuTime{thread, used}
}
