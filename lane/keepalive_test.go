package lane_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/lane"
)

// TestKeepAlive: a silent session in the lane of which an endpoint has vanished ends with that as its error, and the other endpoint is
// reset. One whose endpoints answer goes on, and its idle time goes on counting.
func TestKeepAlive(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 16, KeepAlive: time.Second, UserTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
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
		s, err := l.Join(a, b, func(r lane.Result) { v.ended <- r })
		if err != nil {
			t.Fatal(err)
		}
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
		if err := readError(v.peer); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer of one that has vanished: %v, want a reset", err)
		}
	}
	until(t, "two answers of each endpoint", func() bool {
		v, ok := rests.Look()
		return ok && v.InLane && v.Ends[0].Packets >= before.Ends[0].Packets+2 && v.Ends[1].Packets >= before.Ends[1].Packets+2
	})
	limited(t, rests.client, rests.server)
	rests.exchange(t, []byte("still here"), rests.client, rests.server)
	if st := l.Stats(); st.Ended != 4 || st.Reset != 4 || st.Failed != 0 || st.Lane != 1 {
		t.Errorf("%+v", st)
	}
}
