package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// flowBytes repeat without a period that a power of two divides, so that a byte that is missing, doubled or moved is seen.
var flowBytes = func() []byte {
	b := make([]byte, 251*1024)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}()

// flow writes without a pause until stop, and then ends.
func flow(c net.Conn, stop <-chan struct{}) (sent int64, err error) {
	defer func() { _ = c.(*net.TCPConn).CloseWrite() }()
	for {
		select {
		case <-stop:
			return sent, nil
		default:
		}
		if _, err := c.Write(flowBytes); err != nil {
			return sent, err
		}
		sent += int64(len(flowBytes))
	}
}

// taken reads a flow to its end, and checks each byte.
func taken(c net.Conn) (read int64, err error) {
	b := make([]byte, len(flowBytes))
	for {
		n, err := io.ReadFull(c, b)
		if !bytes.Equal(b[:n], flowBytes[:n]) {
			return read, fmt.Errorf("another byte within %d of %d", n, read)
		}
		read += int64(n)
		switch {
		case err == io.EOF:
			return read, nil
		case err != nil:
			return read, err
		}
	}
}

// flowEndpoint is an endpoint whose first byte says what the client's session is: it sends a flow, or takes one.
func flowEndpoint(t *testing.T, stop <-chan struct{}) (address string) {
	return sockets.Server(t, func(c net.Conn) {
		kind := make([]byte, 1)
		if _, err := io.ReadFull(c, kind); err != nil {
			return
		}
		switch kind[0] {
		case 'd':
			_, _ = flow(c, stop)
			_, _ = c.Read(kind)
		default:
			_, _ = c.Write(kind) // it answers
			n, err := taken(c)
			_, _ = fmt.Fprint(c, n, err)
		}
	})
}

// A flowClient is one end of a session with a flow.
type flowClient struct {
	kind byte
	c    *net.TCPConn
}

// run has the session, and returns how many bytes there were each way.
func (f *flowClient) run(stop <-chan struct{}) (there, back int64, err error) {
	if _, err := f.c.Write([]byte{f.kind}); err != nil {
		return 0, 0, err
	}
	if f.kind == 'd' {
		back, err = taken(f.c)
		return 1, back, err
	}
	if _, err = io.ReadFull(f.c, make([]byte, 1)); err != nil {
		return 1, 0, err
	}
	if there, err = flow(f.c, stop); err != nil {
		return there, 1, err
	}
	answer, err := io.ReadAll(f.c)
	if want := fmt.Sprint(there, error(nil)); err == nil && string(answer) != want {
		err = fmt.Errorf("the endpoint has got %q, not %q", answer, want)
	}
	return there + 1, int64(len(answer)) + 1, err
}

// TestLaneFlows: sessions with flows that never pause, to the client or to the endpoint, all leave user space, and every byte
// arrives once and in order, and is counted.
func TestLaneFlows(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	sessions := full.Times(16, 64)
	if race.Enabled {
		sessions = 6
	}
	stop := make(chan struct{})
	r := start(t, strings.Replace(laneConfig(flowEndpoint(t, stop), "lane: auto"), "sessions: 64", "sessions: 256", 1))
	var all sync.WaitGroup
	var there, back atomic.Int64
	for i := range sessions {
		f := &flowClient{kind: "dud"[i%3], c: sockets.Dial(t, r.At("l"))}
		must(t, f.c.SetDeadline(time.Now().Add(condition.Patience)))
		all.Go(func() {
			defer f.c.Close()
			to, from, err := f.run(stop)
			if err != nil {
				t.Errorf("session %d (%c): %v", i, f.kind, err)
			}
			there.Add(to)
			back.Add(from)
		})
	}
	defer func() { t.Logf("%+v", r.Status().Lane) }()
	// A flow that could not leave out of a gap rests for 20 times lane.after, and on a machine that is busy with others several may have to, again and again.
	most := int64(10 * sessions)
	for left, none := int64(0), int64(0); left < int64(sessions) && none < most; {
		r.Until("one more flow has left, or has found no gap", func() bool {
			now := r.Status().Lane
			more := now.Left > left || now.Stays["no gap"] > none
			left, none = now.Left, now.Stays["no gap"]
			return more
		})
	}
	if now := r.Status().Lane; now.Left < int64(sessions) {
		t.Errorf("%d of %d flows have left", now.Left, sessions)
	}
	before := r.Status().Bytes
	r.Until("they go on", func() bool {
		b := r.Status().Bytes
		return b.ClientToEndpoint.Lane > before.ClientToEndpoint.Lane && b.EndpointToClient.Lane > before.EndpointToClient.Lane
	})
	close(stop)
	all.Wait()
	r.Until("they have ended", func() bool { return r.Status().Connections.Active == 0 })
	st := r.Status()
	if b := st.Bytes; b.ClientToEndpoint.All() != there.Load() || b.EndpointToClient.All() != back.Load() {
		t.Errorf("%+v, want %d and %d", b, there.Load(), back.Load())
	}
	if st.Lane.Reset != 0 || st.Lane.Returned != 0 {
		t.Errorf("%+v", st.Lane)
	}
}
