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

// The events that the loop asks for. epoll also reports EPOLLERR and EPOLLHUP, always.
const (
	// edges is for everything but listeners: all events, each once.
	edges = sys.EPOLLIN | sys.EPOLLOUT | sys.EPOLLPRI | sys.EPOLLRDHUP | sys.EPOLLET

	// queue is for listeners: it reports as long as connections are queued and, if several loops wait for the
	// same listener, to as few loops as possible. EPOLL_CTL_MOD does not work with it.
	queue = sys.EPOLLIN | sys.EPOLLEXCLUSIVE
)

// A poller is an epoll instance and the events that it last returned.
type poller struct {
	fd     int // owned; -1 after close
	events []sys.EpollEvent
	coarse bool // there is no epoll_pwait2
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

// close closes the instance. It forgets the number, which another file may get, so that late calls do not find
// that file.
func (p *poller) close() error {
	fd := p.fd
	p.fd = -1
	return os.NewSyscallError("close", sys.Close(fd))
}

// watch adds the mailbox's eventfd, with a slot that no table has. Each write to the eventfd is an edge.
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

// block waits for events for at most timeout nanoseconds, forever if negative, and lets the scheduler know. A
// kernel without epoll_pwait2, or a sandbox that refuses it, gets epoll_wait's milliseconds: the wait may then
// end up to a millisecond late, but never early.
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

// wake makes epoll_wait return. Nobody reads the counter; it would be full after 2^64-2 wake-ups.
func wake(eventfd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = sys.Write(eventfd, one[:])
}

// A netpollWake makes the runtime look at its poller: a goroutine waits there for a descriptor that is always
// ready, and the look that finds this goroutine also finds all others. Until then ready goroutines run.
type netpollWake struct {
	file    *os.File // an eventfd, owned; nil before its first use
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
	_ = k.raw.Read(k.once) // fails only for files that cannot wait
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
		wake(int(fd)) // an edge, although nobody reads it
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
