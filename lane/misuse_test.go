package lane_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/lane"
)

// An owned is a pair of an owner, and its lane.
type owned struct {
	pair
	lane *lane.Lane
}

// registered opens a lane, and registers a session with it, once it is ready.
func registered(t *testing.T, cfg lane.Config) (p owned, a, b int, o *recorder) {
	t.Helper()
	cfg.Devices, cfg.Sessions = []string{"lo"}, 8
	l, err := lane.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	client, near, far, server := legs(t, listener(t, "127.0.0.1:0"))
	a, b = descriptor(t, near), descriptor(t, far)
	_ = errors.Join(syscall.SetNonblock(a, false), syscall.SetNonblock(b, false))
	o = &recorder{ended: make(chan lane.Result, 2)}
	s, err := register(l, a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it is ready", o.ready.Load)
	return owned{pair{client, server, new([2]uint64), s}, l}, a, b, o
}

// leaves has the session leave user space, by a packet of the client's, and its sockets are the owner's still.
func (p pair) leaves(t *testing.T, a, b int) {
	t.Helper()
	until(t, "it leaves", func() bool {
		for _, way := range [2]struct {
			from, to *net.TCPConn
			a, b     int
		}{{p.client, p.server, a, b}, {p.server, p.client, b, a}} {
			p.Arm()
			if p.pass(t, way.from, way.to, way.a, way.b) {
				return true
			}
		}
		return false
	})
}

// TestCloseBeforeLeave: Close and TakeBack wait for no owner to call Leave; a Leave after Close closes both
// descriptors, and resets both sides.
func TestCloseBeforeLeave(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	for _, left := range []bool{true, false} {
		t.Run(fmt.Sprint("left ", left), func(t *testing.T) {
			p, a, b, o := registered(t, lane.Config{})
			if left {
				p.leaves(t, a, b)
				if _, _, _, err := p.TakeBack(10 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("it is taken back:", err)
				}
			} else if !p.Arm() {
				t.Error("not armed")
			}
			if err := p.lane.Close(); err != nil {
				t.Error(err)
			}
			if r := <-o.ended; !r.Reset || r.Left != left {
				t.Errorf("%+v", r)
			}
			if p.Arm() || p.Disarm() {
				t.Error("armed or in user space after the end")
			}
			if err := p.Session.Leave(a, b); err != nil {
				t.Error(err)
			}
			for _, fd := range []int{a, b} {
				if err := syscall.SetNonblock(fd, true); !errors.Is(err, syscall.EBADF) {
					t.Errorf("descriptor %d is open: %v", fd, err)
				}
			}
			wantReset(t, "client", p.client)
			wantReset(t, "server", p.server)
		})
	}
}

// TestLeaveTwice: sockets that are not to be given away are not closed.
func TestLeaveTwice(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	p, a, b, o := registered(t, lane.Config{Linger: 50 * time.Millisecond})
	other := [2]int{duplicate(t, a), duplicate(t, b)}
	refused := func(when string) {
		t.Helper()
		if err := p.Session.Leave(other[0], other[1]); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("in user space")
	syscall.Close(other[0])
	syscall.Close(other[1])
	p.leaves(t, a, b)
	if err := p.Session.Leave(a, b); err != nil {
		t.Error(err)
	}
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	other = pipe
	refused("twice")
	p.Reset()
	<-o.ended
	refused("after the end")
	for _, fd := range pipe {
		if err := syscall.Close(fd); err != nil {
			t.Error("closed:", err)
		}
	}
}

// A notComparable is an owner that has no pointer, and a slice.
type notComparable struct{ _ []int }

func (notComparable) Ready(*lane.Session)              {}
func (notComparable) Left(*lane.Session)               {}
func (notComparable) Ended(*lane.Session, lane.Result) {}

// TestNothing: sessions without an owner or connections are errors, and leave the lane as it is.
func TestNothing(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	if _, err := register(l, 0, 1, nil); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	if err := l.Register(nil, 0, 1, &recorder{}); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	if _, err := register(l, 0, 1, notComparable{}); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	for _, c := range [][2]*net.TCPConn{{}, {nil, new(net.TCPConn)}, {new(net.TCPConn), nil}} {
		if _, err := l.Join(c[0], c[1], nil); !errors.Is(err, os.ErrInvalid) {
			t.Error(err)
		}
	}
	if st := l.Stats(); st.Joined != 0 {
		t.Errorf("%+v", st)
	}
}

// TestJoinedIsNotOwned: methods for an owner do nothing to a session of Join, in user space, in the lane, and after the end.
func TestJoinedIsNotOwned(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	p := joined(t, open(t, "lo"), "tcp", "127.0.0.1:0")
	refused := func() {
		t.Helper()
		_, _, _, err := p.TakeBack(0)
		if p.Arm() || p.Disarm() || !errors.Is(err, os.ErrInvalid) || !errors.Is(p.Session.Leave(0, 1), os.ErrInvalid) {
			t.Error("not refused:", err)
		}
		p.Release()
	}
	refused()
	p.transferUntil(t, 200_000, 1, func() bool { refused(); return p.Left() })
	refused()
}

// An armer arms its session as soon as it may.
type armer struct {
	recorder
	armed chan bool
}

func (a *armer) Ready(s *lane.Session) { a.armed <- s.Arm() }

// TestArmInReady: Ready may call Arm. A session of an owner does not come back without it.
func TestArmInReady(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	_, near, far, _ := legs(t, listener(t, "127.0.0.1:0"))
	a, b := descriptor(t, near), descriptor(t, far)
	o := &armer{recorder{ended: make(chan lane.Result, 1)}, make(chan bool, 1)}
	s, err := register(l, a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	if !<-o.armed {
		t.Error("not armed")
	}
	if err := s.ComeBack(0); !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	s.Release()
	_, _ = syscall.Close(a), syscall.Close(b)
}

// TestComeBackInRestored: it is an error there, not a wait for itself. And a session that was joined without an end function
// is no adopted one.
func TestComeBackInRestored(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	errs := make(chan error, 1)
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Restored: func(s *lane.Session, _, _ *net.TCPConn) {
		errs <- s.ComeBack(time.Minute)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	until(t, "the sockets are closed", func() bool { return l.Stats().Left == 1 })
	if p.Adopted() {
		t.Error("adopted")
	}
	p.comesBack(t, time.Second)
	if err := <-errs; !errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}
	p.exchange(t, []byte("in user space"), p.client, p.server)
}

// TestNoDescriptors: a session that cannot come back for want of descriptors ends with that as its error, and is reset
// as soon as there are some.
func TestNoDescriptors(t *testing.T) {
	if !alone(t) {
		return
	}
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	results := make(chan lane.Result, 1)
	s, err := l.Join(a, b, func(r lane.Result) { results <- r })
	if err != nil {
		t.Fatal(err)
	}
	p := pair{client, server, new([2]uint64), s}
	p.talk(t)
	until(t, "the sockets are closed", func() bool { return l.Stats().Left == 1 })
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = 3
	err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low)
	back := s.ComeBack(time.Second)
	if err = errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{back, (<-results).Err} {
		if !errors.Is(err, lane.Unrestorable) || !errors.Is(err, syscall.EMFILE) {
			t.Error(err)
		}
	}
	wantReset(t, "client", client)
	wantReset(t, "server", server)
}
