package lane_test

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// TestKeepAlive: if an endpoint of a silent session in the lane has vanished, the session ends with that error,
// and the other endpoint is reset. A session with endpoints that answer goes on, and its idle time still
// counts.
func TestKeepAlive(t *testing.T) {
	if !alone(t) {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 16, KeepAlive: time.Second, UserTimeout: time.Second}))(t)
	defer l.Close()
	rests := joined(t, l, "tcp", "127.0.0.1:0")
	rests.talk(t)
	before, ok := rests.Look()
	if !ok {
		t.Fatal("it has no place in the lane")
	}
	type vanished struct {
		by    int
		peer  *net.TCPConn
		ended chan lane.Result
	}
	var all []vanished
	for i, at := range []string{"127.0.0.1:0", "127.0.0.1:0", "[::1]:0", "[::1]:0"} {
		v := vanished{by: i % 2, ended: make(chan lane.Result, 1)}
		client, a, b, server := legs(t, listener(t, at))
		s := must.Get(l.Join(a, b, func(r lane.Result) { v.ended <- r }))(t)
		p := pair{client, server, new([2]uint64), s}
		p.talk(t)
		to := server
		if v.peer = client; v.by == 0 {
			v.peer, to = to, v.peer
		}
		deafen(t, to)
		all = append(all, v)
	}
	for _, v := range all {
		var got *lane.TimedOut
		if r := <-v.ended; !errors.As(r.Err, &got) || got.By != v.by || !r.Reset || !r.Left {
			t.Errorf("endpoint %d has vanished: %+v", v.by, r)
		}
		must.Is(t, readError(v.peer), syscall.ECONNRESET)
	}
	condition.Await(t, "two answers of each endpoint", func() bool {
		v, ok := rests.Look()
		return ok && v.InLane && v.Ends[0].Packets >= before.Ends[0].Packets+2 && v.Ends[1].Packets >= before.Ends[1].Packets+2
	})
	limited(t, rests.client, rests.server)
	rests.exchange(t, []byte("still here"), rests.client, rests.server)
	if st := l.Stats(); st.Ended != 4 || st.Reset != 4 || st.Failed != 0 || st.Lane != 1 {
		t.Errorf("%+v", st)
	}
}

// deafen makes the kernel drop everything that arrives for a connection, as if its host had vanished.
func deafen(t *testing.T, c *net.TCPConn) {
	t.Helper()
	nothing := []syscall.SockFilter{{Code: syscall.BPF_RET | syscall.BPF_K}}
	program := syscall.SockFprog{Len: uint16(len(nothing)), Filter: &nothing[0]}
	text := unsafe.String((*byte)(unsafe.Pointer(&program)), unsafe.Sizeof(program))
	must.Do(t, syscall.SetsockoptString(sockets.FD(t, c), syscall.SOL_SOCKET, syscall.SO_ATTACH_FILTER, text))
	runtime.KeepAlive(nothing)
}

// A boundedOwner is an owner that sets a user timeout.
type boundedOwner struct {
	recorder
	timeout time.Duration
}

func (o *boundedOwner) UserTimeout(*lane.Session) time.Duration { return o.timeout }

var _ lane.Bounded = (*boundedOwner)(nil)

// readError returns the error with which a connection ends to which nothing is sent.
func readError(c *net.TCPConn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

// writes writes some bytes, and returns the error with which the connection ends.
func writes(c *net.TCPConn) error {
	if _, err := c.Write([]byte("unheard")); err != nil {
		return err
	}
	return readError(c)
}

// TestUserTimeout: if an endpoint has vanished while bytes or an end of file are on the way to it, the session
// in the lane ends with that error. Another session that is at rest goes on.
func TestUserTimeout(t *testing.T) {
	if !alone(t) {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 16, UserTimeout: 100 * time.Millisecond}))(t)
	defer l.Close()
	rests := joined(t, l, "tcp", "127.0.0.1:0")
	rests.talk(t)
	for _, c := range []struct {
		name string
		by   int
		send func(c *net.TCPConn) error // returns the error of the reset
	}{
		{"bytes to the server", 1, writes},
		{"bytes to the client", 0, writes},
		{"more than is taken", 1, func(c *net.TCPConn) error { _, err := c.Write(make([]byte, 1<<26)); return err }},
		{"an end of file", 1, func(c *net.TCPConn) error { return errors.Join(c.CloseWrite(), readError(c)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			results := make(chan lane.Result, 1)
			client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
			s := must.Get(l.Join(a, b, func(r lane.Result) { results <- r }))(t)
			p := pair{client, server, new([2]uint64), s}
			p.talk(t)
			condition.Await(t, "all is acknowledged", func() bool {
				v, ok := p.Look()
				return ok && v.Ends[0].Outstanding == 0 && v.Ends[1].Outstanding == 0
			})
			from, to := client, server
			if c.by == 0 {
				from, to = to, from
			}
			deafen(t, to)
			began := time.Now()
			must.Is(t, c.send(from), syscall.ECONNRESET)
			var got *lane.TimedOut
			r := <-results
			t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), r.Err)
			if !errors.As(r.Err, &got) || got.By != c.by || !errors.Is(r.Err, syscall.ETIMEDOUT) || !r.Reset || !r.Left {
				t.Errorf("%+v", r)
			}
		})
	}
	limited(t, rests.client, rests.server)
	rests.exchange(t, []byte("still here"), rests.client, rests.server)
	if st := l.Stats(); st.Ended != 4 || st.Reset != 4 || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
}

// TestIdleSince: the idle time of a session that the lane relays in user space counts from its last bytes.
func TestIdleSince(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	p := joined(t, l, "tcp", "127.0.0.1:0")
	must.Do(t, p.ComeBack(0)) // from now on it stays in user space
	p.exchange(t, []byte("there"), p.client, p.server)
	moves(t, "joined", p.Session, func() { p.exchange(t, []byte("and back"), p.server, p.client) })
}
