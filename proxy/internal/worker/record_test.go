package worker_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// recorded returns the records of clients that have ended, when there are so many.
func (r *rig) recorded(t *testing.T, n int) []record.Record {
	t.Helper()
	var ended []record.Record
	eventually(t, func() bool {
		r.witness.mu.Lock()
		defer r.witness.mu.Unlock()
		ended = append([]record.Record(nil), r.witness.ended...)
		return len(ended) >= n
	})
	if len(ended) != n {
		t.Fatalf("%d records, want %d", len(ended), n)
	}
	return ended
}

// inOrder checks that the client has come through these times one after the other.
func inOrder(t *testing.T, times ...int64) {
	t.Helper()
	for i, at := range times {
		if at == 0 || i > 0 && at < times[i-1] {
			t.Errorf("time %d of %d, in order: %v", i, len(times), times)
		}
	}
}

// TestRecordOfSession: the course of a session with a PROXY header. Its client is traced, so it has a record, however few
// are kept otherwise, with the number of its sampler.
func TestRecordOfSession(t *testing.T) {
	t.Parallel()

	ep := echo(t)
	d := straight(ep)
	r := directed(t, d, func(c *setup, s *worker.Service) {
		s.Preread.Header = &proxyproto.Policy{}
		s.Preread.Data = true
	})
	r.sampler = 3
	r.serve(t)
	c := r.dial(t)
	mustWrite(t, c, []byte("PROXY TCP4 192.0.2.7 192.0.2.8 1234 443\r\n"))
	talk(t, c)
	c.(*net.TCPConn).CloseWrite()
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	c.Close()
	got := r.recorded(t, 1)[0]
	if got.Outcome != record.Joined || got.ID.IsZero() || got.Listener != "first" || got.Sampler != 3 {
		t.Errorf("%v %v %q, sampler %d", got.Outcome, got.ID, got.Listener, got.Sampler)
	}
	if got.Client != source.TCP(c.LocalAddr().(*net.TCPAddr).AddrPort()) || got.Local.String() != c.RemoteAddr().String() ||
		got.Source != netip.MustParseAddrPort("192.0.2.7:1234") || got.Destination != netip.MustParseAddrPort("192.0.2.8:443") || got.EndpointName() != ep {
		t.Errorf("client %v, local %v, source %v, destination %v, endpoint %v", got.Client, got.Local, got.Source, got.Destination, got.EndpointName())
	}
	inOrder(t, got.Accepted, got.Begun, got.Header, got.Preread, got.Routed, got.Connecting, got.Joined, got.ClientFirst, got.EndpointFirst, got.Ended)
	inOrder(t, got.ClientFirst, got.HalfClosed, got.Ended)
	if got.Result.Reason != relay.ReasonEOF || got.Result.First != relay.SideA || got.Result.AToB.Bytes() == 0 || got.Result.AToB.Bytes() != got.Result.BToA.Bytes() {
		t.Errorf("%+v", got.Result)
	}
	if len(r.began) != 1 || r.began[0].ID != got.ID {
		t.Errorf("%d sessions have begun", len(r.began))
	}
}

// TestRecordsOfOthers: clients that are not joined leave one record each, too.
func TestRecordsOfOthers(t *testing.T) {
	t.Parallel()

	wait := make(chan struct{})
	steps := map[int]worker.Step{
		0: {Action: worker.GiveUp}, 1: {Action: worker.Respond, Bytes: []byte("busy")}, 2: {Action: worker.Park},
	}
	var n atomic.Int32
	d := &director{next: func(*worker.Client, int) worker.Step {
		step := steps[int(n.Load())]
		if step.Action == worker.Park {
			close(wait)
		}
		return step
	}}
	r := directed(t, d, func(c *setup, s *worker.Service) { s.Preread.Data = true })
	r.records.Store(true)
	r.serve(t)
	come := func() net.Conn {
		c := r.dial(t)
		mustWrite(t, c, []byte("x"))
		return c
	}

	io.ReadAll(come())
	got := r.recorded(t, 1)[0]
	if got.Outcome != record.Refused || got.Err != errGivenUp || got.Joined != 0 {
		t.Errorf("refused: %+v", got)
	}
	inOrder(t, got.Accepted, got.Begun, got.Routed, got.Ended)
	n.Store(1)
	c := come()
	if b, err := io.ReadAll(c); string(b) != "busy" || err != nil {
		t.Errorf("response %q, %v", b, err)
	}
	c.Close()
	if got := r.recorded(t, 2)[1]; got.Outcome != record.Responded || got.Result.BToA.Bytes() != 4 {
		t.Errorf("responded: %+v", got)
	}
	n.Store(2)
	c = come()
	<-wait
	time.Sleep(time.Millisecond) // so that the wait has a length
	reset(c)
	got = r.recorded(t, 3)[2]
	if got.Outcome != record.Left || got.Queued == 0 {
		t.Errorf("left: %+v", got)
	}
}

// TestRecordOfUnreadResponse: what a client has not read of its response when its time is over is lost, though the socket had taken all,
// and the client counts as one that has left.
func TestRecordOfUnreadResponse(t *testing.T) {
	t.Parallel()

	r, pass := clocked(t, responding(make([]byte, 60_000), 7*time.Second), nil)
	r.records.Store(true)
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		stop := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1) })
		return errors.Join(err, stop)
	}}
	c := must.Get(d.Dial(r.addr.Network(), r.addr.String()))(t)
	defer c.Close()
	fd, came := sockets.FD(t, c.(*net.TCPConn)), 0
	eventually(t, func() bool {
		r.Turn()
		came = must.Get(sys.FIONREAD(fd))(t)
		return came > 0
	})
	pass(8 * time.Second)
	came = must.Get(sys.FIONREAD(fd))(t)
	got := r.recorded(t, 1)[0]
	if f := got.Result.BToA; got.Outcome != record.Left || f.Copied != 60_000 || f.Lost < int64(60_000-came) || f.Lost >= 60_000 {
		t.Errorf("%v, %+v, and %d bytes have come, of which the last may not be acknowledged", got.Outcome, f, came)
	}
}

// TestNoRecords: nothing is kept if nobody wants it, also of sessions that began before, and no first bytes are looked at.
func TestNoRecords(t *testing.T) {
	t.Parallel()

	r := directed(t, straight(echo(t)), nil)
	r.serve(t)
	c := r.dial(t)
	talk(t, c)
	r.Turn()
	c.Close()
	eventually(t, func() bool { return r.Active() == 0 })
	if len(r.ended) != 0 || r.KeptRecords() != 0 || r.peeks() != 0 {
		t.Errorf("%d records have ended, and there is memory for %d; %d peeks", len(r.ended), r.KeptRecords(), r.peeks())
	}
}

// TestRecordsAreUsedAgain: one session after the other takes the memory of one.
func TestRecordsAreUsedAgain(t *testing.T) {
	t.Parallel()

	r := directed(t, straight(echo(t)), nil)
	r.records.Store(true)
	r.serve(t)
	const sessions = 300
	for range sessions {
		c := r.dial(t)
		talk(t, c)
		c.Close()
	}
	seen := make(map[record.ID]bool)
	for _, got := range r.recorded(t, sessions) {
		seen[got.ID] = true
	}
	if n := r.KeptRecords(); len(seen) != sessions || n > 2*128 {
		t.Errorf("%d IDs of %d sessions, memory for %d", len(seen), sessions, n)
	}
}
