package evring_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
)

func TestMain(m *testing.M) {
	if os.Args[0] == childName {
		os.Exit(child(os.Args[1]))
	}
	leak.Main(m)
}

func newRing(t testing.TB, cfg *evring.Config) *evring.Ring {
	t.Helper()
	r, err := evring.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// poll waits for a descriptor by an epoll instance of its own, as a loop does.
type poll struct {
	epfd   int // owned
	events [1]sys.EpollEvent
}

func newPoll(t testing.TB, fd int) *poll {
	t.Helper()
	return newPollOf(t, fd, sys.EPOLLIN)
}

func newPollOf(t testing.TB, fd int, mask uint32) *poll {
	t.Helper()
	p, err := openPoll(fd, mask)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

func openPoll(fd int, mask uint32) (*poll, error) {
	epfd, err := sys.EpollCreate1()
	if err != nil {
		return nil, err
	}
	if err := sys.EpollCtl(epfd, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: mask, Fd: int32(fd)}); err != nil {
		sys.Close(epfd)
		return nil, err
	}
	return &poll{epfd: epfd}, nil
}

func (p *poll) close() { sys.Close(p.epfd) }

// wait reports whether the descriptor is readable within so many milliseconds.
func (p *poll) wait(msec int) bool {
	for {
		n, err := sys.EpollWait(p.epfd, p.events[:], msec)
		if err != syscall.EINTR {
			return n > 0
		}
	}
}

// sleep is a consumer's sleep, with all that belongs to it.
func sleep(r *evring.Ring, p *poll, msec int) {
	if !r.Sleep() {
		msec = 0
	}
	r.Awake(p.wait(msec))
}
