package relay_test

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// TestLateTurn: in a turn that is late a direction reads once, so that many busy
// ones do not keep everybody else waiting. By the test's clock every turn is late, or
// none.
func TestLateTurn(t *testing.T) {
	t.Parallel()

	const size = 128 << 10 // what is queued before the loop looks: two reads
	for _, late := range []bool{false, true} {
		r := newRelay(t, &relay.Config{Engine: relay.EngineCopy})
		var now atomic.Int64
		now.Store(1)
		cfg := &loop.Config{Now: func() int64 {
			if late {
				return now.Add(int64(3 * time.Millisecond))
			}
			return now.Load()
		}}
		on := newLooped(t, r, cfg, &arena.Config{Locals: 1})
		far, near := unixStream(t)
		sink, dst := sockets.UnixPair(t)
		for _, c := range []*net.UnixConn{far.(*net.UnixConn), dst} {
			if err := c.SetWriteBuffer(4 * size); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := far.Write(content(1, size)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan relay.Result, 1)
		s := &loopSession{on: on, ended: func(res relay.Result, _ error) { ended <- res }}
		a, b := on.take(near), on.take(dst)
		a.Events, b.Events = loop.Readable|loop.Writable, loop.Writable
		var first int64
		on.do(func() {
			var errA, errB error
			a.ID, errA = on.loop.Add(a.FD, 0, &s.driven)
			b.ID, errB = on.loop.Add(b.FD, 1, &s.driven)
			if err := errors.Join(errA, errB); err != nil {
				t.Error(err)
				return
			}
			on.driver.Start(&s.driven, a, b, s)
			first = s.driven.Result().AToB.Bytes()
		})
		want := int64(size)
		if late {
			want /= 2
		}
		if first != want {
			t.Errorf("late %v: %d bytes moved at once, want %d", late, first, want)
		}
		if err := far.CloseWrite(); err != nil {
			t.Error(err)
		}
		if err := sink.CloseWrite(); err != nil {
			t.Error(err)
		}
		if err := expect(sink, content(1, size)); err != nil {
			t.Error(err)
		}
		if res := <-ended; res.Reason != relay.ReasonEOF {
			t.Errorf("late %v: %+v", late, res)
		}
	}
}
