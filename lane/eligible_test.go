package lane_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// TestNotEligible: a session that cannot leave user space is relayed there, and Refused returns the reason.
func TestNotEligible(t *testing.T) {
	if !alone(t) {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 1}))(t)
	var staying pair
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wantReset(t, "one that stays, after Close", staying.client)
	}()
	first := joined(t, l, "tcp", "127.0.0.1:0")
	first.talk(t)
	v4, v6 := listener(t, "127.0.0.1:0"), listener(t, "[::1]:0")
	for want, p := range map[lane.Reason]func() pair{
		lane.Full: func() pair { return joined(t, l, "tcp", "127.0.0.1:0") },
		lane.MixedFamilies: func() pair {
			client, a := connected(t, v4)
			b, server := connected(t, v6)
			return join(t, l, client, a, b, server)
		},
		lane.SharedConnection: func() pair { // both ends of one connection, with another connection in between
			client, a := connected(t, v4)
			return join(t, l, client, a, client, a)
		},
	} {
		t.Run(want.String(), func(t *testing.T) {
			if want == lane.SharedConnection {
				if p := p(); p.Refused() != want {
					t.Errorf("refused: %v", p.Refused())
				}
				return
			}
			p := p()
			p.transfer(t, 100_000, 1, false)
			if !errors.Is(p.Refused(), want) || p.Left() {
				t.Errorf("refused: %v, left: %v", p.Refused(), p.Left())
			}
		})
	}
	if n := l.Stats().Refused; n[lane.Full] != 1 || n[lane.MixedFamilies] != 1 {
		t.Errorf("%v", n)
	}
	first.exchange(t, []byte("goes on"), first.client, first.server)
	staying = joined(t, l, "tcp", "127.0.0.1:0")
}

func listener(t *testing.T, address string) net.Listener {
	t.Helper()
	l := must.Get(net.Listen("tcp", address))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

// TestMarked: a session stays in user space if a socket has a mark, because the mark may decide the route of
// its packets. A session without a place does not have the tries of this one.
func TestMarked(t *testing.T) {
	if !alone(t) {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 1}))(t)
	t.Cleanup(func() { must.Do(t, l.Close()) })
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	must.Do(t, syscall.SetsockoptInt(sockets.FD(t, b), syscall.SOL_SOCKET, syscall.SO_MARK, 7))
	p := join(t, l, client, a, b, server)
	condition.Await(t, "it may not leave", func() bool {
		p.both(t)
		return p.Refused() == lane.Route
	})
	if p.Left() {
		t.Error("it has left user space")
	}
	if one, other := p.Tries(), joined(t, l, "tcp", "127.0.0.1:0").Tries(); one == 0 || other != 0 {
		t.Errorf("%d tries, and %d of a session without a place", one, other)
	}
}

// TestReasonsOfPrograms: the reasons have the same numbers in the programs and in Go.
func TestReasonsOfPrograms(t *testing.T) {
	t.Parallel()

	header := must.Get(os.ReadFile("internal/program/bpf/session.h"))(t)
	names := regexp.MustCompile(`(?m)^\t(WHY_[A-Z_]+),$`).FindAllSubmatch(header, -1)
	want := map[string]lane.Reason{
		"WHY_NONE": lane.None, "WHY_NO_SOCKET": lane.NoSocket, "WHY_NOT_ESTABLISHED": lane.NotEstablished, "WHY_UNREAD": lane.Unread,
		"WHY_OUT_OF_ORDER": lane.OutOfOrder, "WHY_NOT_NEXT": lane.NotNext, "WHY_UNACKNOWLEDGED": lane.Unacknowledged, "WHY_IN_FLIGHT": lane.InFlight,
		"WHY_RESET": lane.ResetSeen, "WHY_TIMESTAMPS": lane.Timestamps, "WHY_MICROSECONDS": lane.Microseconds, "WHY_MSS": lane.SegmentSize,
		"WHY_PATH_MTU": lane.PathMTU, "WHY_ECN": lane.ECN, "WHY_MPTCP": lane.Multipath, "WHY_SIGNED": lane.Signed, "WHY_URGENT": lane.Urgent,
		"WHY_ULP": lane.UpperLayer, "WHY_BIG_TCP": lane.BigTCP, "WHY_DEVICE": lane.Device, "WHY_ROUTE": lane.Route, "WHY_TAKEN": lane.Interrupted, "WHY_COUNT": lane.Interrupted + 1,
	}
	if len(names) != len(want) {
		t.Errorf("%d reasons in C, %d in Go", len(names), len(want))
	}
	for i, m := range names {
		if r, ok := want[string(m[1])]; !ok || int(r) != i {
			t.Errorf("%s is %d in C and %d in Go", m[1], i, r)
		}
	}
}

// open1 returns a function that checks and returns a descriptor. The test closes the descriptor at its end.
func open1(t *testing.T) func(fd int, err error) int {
	return func(fd int, err error) int {
		t.Helper()
		must.Do(t, err)
		t.Cleanup(func() { _ = syscall.Close(fd) })
		return fd
	}
}

// TestRegisterRefused: descriptors that can have no session are refused, each with its reason.
func TestRegisterRefused(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, near, far, server := legs(t, listener(t, "127.0.0.1:0"))
	defer near.Close()
	defer far.Close()
	a, b, got := sockets.FD(t, near), sockets.FD(t, far), open1(t)
	s := must.Get(register(l, a, b, &recorder{}))(t)
	defer s.Release()
	const multipath = 262
	for _, c := range []struct {
		name string
		fd   int
		want error
	}{
		{"unix", got(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)), lane.NotTCP},
		{"UDP", got(syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)), lane.NotTCP},
		{"MPTCP", got(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, multipath)), lane.Multipath},
		{"not connected", got(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)), lane.NotEstablished},
		{"file", got(syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)), lane.NotTCP},
		{"none", -1, syscall.EBADF},
		{"joined", a, lane.JoinedAlready},
		{"the other end", sockets.FD(t, client), lane.SharedConnection},
	} {
		for _, fds := range [][2]int{{c.fd, b}, {b, c.fd}} {
			if c.name == "the other end" {
				fds = [2]int{c.fd, sockets.FD(t, server)}
			}
			if _, err := register(l, fds[0], fds[1], &recorder{}); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
	}
}

// TestJoinRefused: Join returns an error for a connection that is closed or that belongs to a session. The
// other connection still belongs to the caller. A session that has come back has a reason other than "none".
func TestJoinRefused(t *testing.T) {
	if !alone(t) {
		return
	}
	l, at := open(t, "lo"), listener(t, "127.0.0.1:0")
	client, a, b, server := legs(t, at)
	gone, other := connected(t, at)
	gone.Close()
	other.Close()
	for _, c := range [][2]*net.TCPConn{{gone, b}, {a, gone}} {
		must.Fail(l.Join(c[0], c[1], nil))(t, net.ErrClosed)
	}
	p := join(t, l, client, a, b, server)
	p.talk(t)
	p.comesBack(t, time.Second)
	p.MayLeave()
	p.exchange(t, []byte("from user space"), p.client, p.server)
	if n, ok := l.Stats().Refused[lane.None]; ok {
		t.Errorf("%d sessions could not leave for no reason", n)
	}
	client, a, b, server = legs(t, at)
	p = join(t, l, client, a, b, server)
	must.Do(t, p.ComeBack(0)) // from now on it stays in user space
	p.exchange(t, []byte("once"), p.client, p.server)
	_, c, d, _ := legs(t, at)
	for _, again := range [][2]*net.TCPConn{{a, b}, {b, a}, {a, c}, {c, b}} {
		if s, err := l.Join(again[0], again[1], nil); s != nil || !errors.Is(err, lane.JoinedAlready) {
			t.Errorf("joined again: %v, %v", s, err)
		}
	}
	p.exchange(t, []byte("and goes on"), p.client, p.server)
	must.Get(l.Join(c, d, nil))(t)
}

// TestBadConfig: a configuration that no lane can have is invalid, not unavailable.
func TestBadConfig(t *testing.T) {
	if !alone(t) {
		return
	}
	lo := []string{"lo"}
	for _, c := range []lane.Config{
		{},
		{Devices: []string{""}},
		{Devices: []string{"lo", "eth0", "lo"}},
		{Devices: lo, Sessions: -1},
		{Devices: lo, Sessions: 1 << 31},
		{Devices: lo, Linger: -1},
		{Devices: lo, UserTimeout: -1},
		{Devices: lo, KeepAlive: -1},
		{Devices: lo, Pin: t.TempDir()},
	} {
		if _, err := lane.Open(c); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	l, err := lane.Open(lane.Config{Devices: lo, Sessions: 1 << 30})
	var missing *lane.Unavailable
	if err == nil {
		l.Close()
	} else if !errors.As(err, &missing) || missing.Missing[0] != "memory for that many sessions" {
		t.Error(err)
	}
}

// TestMisusedSession: invalid descriptors do not become the lane's, and one connection alone is no session. A
// second Close waits for the first.
func TestMisusedSession(t *testing.T) {
	if !alone(t) {
		return
	}
	p, l, a, b, _ := registered(t, 0)
	p.leaves(t, a, b)
	must.Is(t, p.Session.Leave(-1, -1), syscall.EBADF)
	must.Do(t, p.Session.Leave(a, b))
	if s, err := l.Join(p.client, p.client, nil); s != nil || !errors.Is(err, os.ErrInvalid) {
		t.Errorf("Join of a connection with itself: %v, %v", s, err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := l.Close(); err != nil {
				t.Error("Close:", err)
			}
		})
	}
	all.Wait()
}

// registered opens a lane and registers a session, and returns when the session is ready.
func registered(t *testing.T, linger time.Duration) (p pair, l *lane.Lane, a, b int, o *recorder) {
	t.Helper()
	l = must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 8, Linger: linger}))(t)
	t.Cleanup(func() { l.Close() })
	o = &recorder{ended: make(chan lane.Result, 2)}
	p, a, b = owned(t, l, o)
	condition.Await(t, "it is ready", o.ready.Load)
	return p, l, a, b, o
}

// leaves makes the session leave user space by a packet of the client. Its sockets still belong to the owner.
func (p pair) leaves(t *testing.T, a, b int) {
	t.Helper()
	condition.Await(t, "it leaves", func() bool {
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

// TestCloseBeforeLeave: Close and TakeBack do not wait until an owner calls Leave. A Leave after Close closes
// both descriptors and resets both sides.
func TestCloseBeforeLeave(t *testing.T) {
	if !alone(t) {
		return
	}
	for _, left := range []bool{true, false} {
		t.Run(fmt.Sprint("left ", left), func(t *testing.T) {
			p, l, a, b, o := registered(t, 0)
			if left {
				p.leaves(t, a, b)
				if _, _, _, err := p.TakeBack(10 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("it is taken back:", err)
				}
			} else if !p.Arm() {
				t.Error("not armed")
			}
			must.Do(t, l.Close())
			if r := <-o.ended; !r.Reset || r.Left != left {
				t.Errorf("%+v", r)
			}
			if p.Arm() || p.Disarm() {
				t.Error("armed or in user space after the end")
			}
			must.Do(t, p.Session.Leave(a, b))
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

// TestLeaveTwice: Leave does not close sockets if there are none to give away.
func TestLeaveTwice(t *testing.T) {
	if !alone(t) {
		return
	}
	p, _, a, b, o := registered(t, 50*time.Millisecond)
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
	must.Do(t, p.Session.Leave(a, b))
	var pipe [2]int
	must.Do(t, syscall.Pipe(pipe[:]))
	other = pipe
	refused("twice")
	p.Reset()
	<-o.ended
	refused("after the end")
	for _, fd := range pipe {
		must.Do(t, syscall.Close(fd))
	}
}

// A notComparable is an owner that is no pointer and has a slice.
type notComparable struct{ _ []int }

func (notComparable) Ready(*lane.Session)              {}
func (notComparable) Left(*lane.Session)               {}
func (notComparable) Ended(*lane.Session, lane.Result) {}

// TestNothing: a session without an owner or without connections is an error, and the lane does not change.
func TestNothing(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	must.Fail(register(l, 0, 1, nil))(t, os.ErrInvalid)
	must.Is(t, l.Register(nil, 0, 1, &recorder{}), os.ErrInvalid)
	must.Fail(register(l, 0, 1, notComparable{}))(t, os.ErrInvalid)
	for _, c := range [][2]*net.TCPConn{{}, {nil, new(net.TCPConn)}, {new(net.TCPConn), nil}} {
		must.Fail(l.Join(c[0], c[1], nil))(t, os.ErrInvalid)
	}
	if st := l.Stats(); st.Joined != 0 {
		t.Errorf("%+v", st)
	}
}

// TestJoinedIsNotOwned: methods for an owner do nothing with a session of Join, in user space, in the lane, and
// after the end.
func TestJoinedIsNotOwned(t *testing.T) {
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

// TestComeBackInRestored: ComeBack in Restored returns an error, and does not wait for itself. A session that
// was joined without an end function does not count as adopted.
func TestComeBackInRestored(t *testing.T) {
	if !alone(t) {
		return
	}
	errs := make(chan error, 1)
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Restored: func(s *lane.Session, _, _ *net.TCPConn) {
		errs <- s.ComeBack(time.Minute)
	}}))(t)
	defer l.Close()
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	condition.Await(t, "the sockets are closed", func() bool { return l.Stats().Left == 1 })
	if p.Adopted() {
		t.Error("adopted")
	}
	p.comesBack(t, time.Second)
	must.Is(t, <-errs, os.ErrInvalid)
	p.exchange(t, []byte("in user space"), p.client, p.server)
}

// TestNoDescriptors: if there are no descriptors for a session to come back, it ends with that error, and is
// reset as soon as there are some.
func TestNoDescriptors(t *testing.T) {
	if !alone(t) {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 8}))(t)
	defer l.Close()
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	results := make(chan lane.Result, 1)
	s := must.Get(l.Join(a, b, func(r lane.Result) { results <- r }))(t)
	p := pair{client, server, new([2]uint64), s}
	p.talk(t)
	condition.Await(t, "the sockets are closed", func() bool { return l.Stats().Left == 1 })
	var old syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	low := old
	low.Cur = 3
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low)
	back := s.ComeBack(time.Second)
	must.Do(t, errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)))
	for _, err := range []error{back, (<-results).Err} {
		if !errors.Is(err, lane.Unrestorable) || !errors.Is(err, syscall.EMFILE) {
			t.Error(err)
		}
	}
	wantReset(t, "client", client)
	wantReset(t, "server", server)
}

// TestZeroValues: the zero Lane is closed, the zero Session has ended, and each of their methods returns.
func TestZeroValues(t *testing.T) {
	t.Parallel()

	var l lane.Lane
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	defer a.Close()
	defer b.Close()
	_, joins := l.Join(a, b, nil)
	_, registers := register(&l, sockets.FD(t, client), sockets.FD(t, server), &recorder{})
	var s lane.Session
	x, y, _, takes := s.TakeBack(0)
	for name, err := range map[string]error{"Join": joins, "Register": registers, "ComeBack": s.ComeBack(0), "TakeBack": takes, "Session.Leave": s.Leave(0, 1)} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must.Do(t, errors.Join(l.Close(), l.Leave()))
	if st := l.Stats(); st.Joined != 0 || l.Memory() != 0 || len(l.Sessions()) != 0 {
		t.Errorf("%+v, %d bytes, %v", st, l.Memory(), l.Sessions())
	}
	s.MayLeave()
	s.Reset()
	s.Release()
	s.Wait()
	_, looked := s.Look()
	_, _, placed := s.Addresses()
	if x != -1 || y != -1 || s.Arm() || s.Disarm() || s.Left() || s.Adopted() || looked || placed || s.Refused() != lane.None || s.Tries() != 0 || s.Idle() != 0 || s.Bytes() != [2]uint64{} {
		t.Error("the zero Session does something")
	}
	for _, c := range [][2]*net.TCPConn{{client, a}, {server, b}} { // the connections have not changed
		must.Get(c[0].Write([]byte("m")))(t)
		if n, err := c[1].Read(make([]byte, 1)); n != 1 {
			t.Error(err)
		}
	}
}
