package lane_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/lossy"
)

// TestLook: an endpoint that does not read has windows of 0, repeated segments are counted where packets
// are lost, and the way to an endpoint and back is measured.
func TestLook(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	for range 10 {
		p.exchange(t, []byte("there"), p.client, p.server)
		p.exchange(t, []byte("and back"), p.server, p.client)
	}
	v, ok := p.Look()
	for i, e := range v.Ends {
		if !ok || !v.InLane || e.Packets < 10 || e.Window == 0 || e.RoundTrip <= 0 || e.LeastRoundTrip > e.RoundTrip || e.LeastRoundTrip <= 0 {
			t.Errorf("endpoint %d: %+v", i, e)
		}
		if e.Repeated != 0 || e.ZeroWindows != 0 {
			t.Errorf("endpoint %d, of a good link: %+v", i, e)
		}
	}
	p.exchange(t, []byte("a question"), p.client, p.server)
	until(t, "the answer is waited for", func() bool {
		v, _ = p.Look()
		return v.Ends[1].Waits.Answer > 20*time.Millisecond && v.Time > v.Ends[1].Waits.Answer
	})
	p.exchange(t, []byte("an answer"), p.server, p.client)
	if v, _ = p.Look(); v.Ends[1].Waits.Answer < 20*time.Millisecond || v.Ends[1].Waits.Answers == 0 || v.Ends[0].Segments < 11 || v.Ends[0].Payload < 60 {
		t.Errorf("after an answer: %+v", v.Ends)
	}
	lossyLink(t, "lo", lossy.Rate{Twice: 5000})
	go func() {
		for b := make([]byte, 1<<16); ; {
			if _, err := p.client.Write(b); err != nil {
				return
			}
		}
	}()
	until(t, "the server's window is 0", func() bool {
		v, _ = p.Look()
		return v.Ends[1].ZeroWindows > 0 && v.Ends[0].Repeated > 0 && v.Ends[0].Lost > 0 && v.Ends[1].Waits.Window > 0
	})
	if v.Ends[0].ZeroWindows != 0 {
		t.Errorf("the client: %+v", v.Ends[0])
	}
	before := v.Ends[0].Packets
	p.comesBack(t, 0)
	if v, ok = p.Look(); !ok || v.InLane || v.Ends[0].Packets < before || v.Ends[0].Outstanding != 0 {
		t.Errorf("in user space: %+v, %v", v, ok)
	}
	p.Reset()
	p.Wait()
	if v, ok = p.Look(); ok {
		t.Errorf("one that has ended: %+v", v)
	}
}

// TestUnrestorable: where a socket has the address of a session, it cannot come back: it is reset, for that
// reason.
func TestUnrestorable(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	until(t, "the sockets are closed", func() bool { return l.Stats().Left == 1 })
	a, _, ok := p.Addresses()
	if !ok {
		t.Fatal("no addresses")
	}
	other, err := sys.Established(a[1], a[0], 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(other)
	if err := p.ComeBack(time.Second); !errors.Is(err, syscall.EADDRNOTAVAIL) || !errors.Is(err, lane.AddressTaken) {
		t.Errorf("it comes back: %v", err)
	}
	wantReset(t, "server", p.server)
	p.Wait()
	if st := l.Stats(); st.Unrestored[lane.AddressTaken] != 1 || st.Reset != 1 || st.Returned != 0 {
		t.Errorf("%+v", st)
	}
}
