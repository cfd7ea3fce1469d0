package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// laneStream echoes random bytes through a connection, in pieces with pauses, until stop, and checks each of them. It returns how
// many were sent, and the first error.
func laneStream(c *net.TCPConn, seed uint64, stop <-chan struct{}) (sent int64, err error) {
	var ends sync.WaitGroup
	defer ends.Wait()
	total := make(chan int64, 1)
	ends.Go(func() {
		random, bytes := rand.New(rand.NewPCG(seed, 1)), rand.NewChaCha8([32]byte{byte(seed)})
		b := make([]byte, 1<<15)
		n := int64(0)
		defer func() { total <- n; _ = c.CloseWrite() }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			part := b[:1+random.IntN(len(b))]
			_, _ = bytes.Read(part)
			if _, err := c.Write(part); err != nil {
				return
			}
			n += int64(len(part))
			if random.IntN(4) == 0 {
				time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond) // a gap, in which a session may leave
			}
		}
	})
	want, got := rand.NewChaCha8([32]byte{byte(seed)}), make([]byte, 1<<16)
	expected := make([]byte, 1<<16)
	for read := int64(0); ; {
		n, err := c.Read(got)
		_, _ = want.Read(expected[:n])
		if read += int64(n); !bytes.Equal(got[:n], expected[:n]) {
			return read, errors.New("a wrong byte")
		}
		if err == io.EOF {
			if sent = <-total; sent != read {
				err = errors.New("bytes are missing")
			} else {
				err = nil
			}
			return sent, err
		}
		if err != nil {
			return read, err
		}
	}
}

// TestLaneReturns: sessions with traffic leave, come back when the lane is switched off, go on, and leave again, round by round. Every
// byte arrives once and in order, and is counted; nothing is reset.
func TestLaneReturns(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	const sessions, rounds = 8, 3
	r := withLane(t, "lane: auto")
	stop := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	sum := int64(0)
	for i := range uint64(sessions) {
		c := client(t, r.At("l"))
		all.Go(func() {
			sent, err := laneStream(c, i, stop)
			if err != nil {
				t.Errorf("session %d, after %d bytes: %v", i, sent, err)
			}
			mu.Lock()
			defer mu.Unlock()
			sum += sent
		})
	}
	returned := 0
	for round := range rounds {
		r.Until("sessions have left", func() bool { return r.Status().Lane.Active >= sessions/2 })
		if _, err := r.SwitchLane(false, "test"); err != nil {
			t.Fatal(err)
		}
		back, err := r.ReturnLane("test")
		if err != nil || back.Reset != 0 || back.State != admin.LaneOff {
			t.Errorf("round %d: %+v, %v", round, back, err)
		}
		returned += back.Returned
		r.Until("none is left there", func() bool { return r.Status().Lane.Active == 0 })
		before := r.Status().Bytes.ClientToEndpoint.All()
		r.Until("they go on", func() bool { return r.Status().Bytes.ClientToEndpoint.All() > before })
		if _, err := r.SwitchLane(true, "test"); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	all.Wait()
	r.Until("they have ended", func() bool { return r.Status().Connections.Active == 0 })
	st := r.Status()
	if b := st.Bytes; b.ClientToEndpoint.All() != sum || b.EndpointToClient.All() != sum || b.ClientToEndpoint.Lane == 0 {
		t.Errorf("%+v, want %d", b, sum)
	}
	if st.Lane.Reset != 0 || st.Lane.Returned != int64(returned) || returned < sessions/2*rounds {
		t.Errorf("%d have come back: %+v", returned, st.Lane)
	}
}

// TestLaneReturnsHalfClosed: a session whose client has sent its end of file comes back, and the rest of the answer, its timeouts and its
// end are as in user space.
func TestLaneReturnsHalfClosed(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint, far := laneEndpoint(t)
	r := start(t, laneConfig(endpoint, "lane: auto, timeouts: {half_close: 1s}"))
	c := client(t, r.At("l"))
	server := <-far
	defer server.Close() // not before: the collector would close it
	r.leavesFor(t, c, server)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(server); len(b) != 0 || err != nil {
		t.Fatal(b, err)
	}
	if back, err := r.ReturnLane("test"); err != nil || back.Returned != 1 {
		t.Fatal(back, err)
	}
	if s := r.session(t); s.Engine == admin.EngineLane {
		t.Errorf("%+v", s)
	}
	rest := bytes.Repeat([]byte("the rest of the answer"), 1000)
	if _, err := server.Write(rest); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(rest))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, rest) {
		t.Fatal(err)
	}
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Error("the timeout of a session that is closed on one side:", err)
	}
	r.Until("the session has ended", func() bool { return r.session(t) == nil })
}

// TestLaneHalfClose: the same timeout ends a session that has not come back.
func TestLaneHalfClose(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint, far := laneEndpoint(t)
	r := start(t, laneConfig(endpoint, "lane: auto, timeouts: {half_close: 1s, idle: 1h}"))
	c := client(t, r.At("l"))
	server := <-far
	r.leavesFor(t, c, server)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = server.SetReadDeadline(time.Now().Add(patience))
	if b, err := io.ReadAll(server); len(b) != 0 || err != nil {
		t.Fatal(b, err)
	}
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	r.Until("the session has ended", func() bool { return r.session(t) == nil })
	if st := r.Status().Lane; st.Reset != 1 || st.Returned != 0 {
		t.Errorf("%+v", st)
	}
}

// laneEndpoint is an endpoint whose connections the test has.
func laneEndpoint(t *testing.T) (address string, accepted <-chan *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	far, over := make(chan *net.TCPConn), make(chan struct{})
	var accepting sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		close(over)
		accepting.Wait()
	})
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() }) // it is not closed before, though the test may have forgotten it
			select {
			case far <- c.(*net.TCPConn):
			case <-over: // a check of the endpoint's
			}
		}
	})
	return l.Addr().String(), far
}

// leavesFor has messages pass both ways until the session has left user space.
func (r *rig) leavesFor(t *testing.T, a, b *net.TCPConn) {
	t.Helper()
	r.Until("the session has left", func() bool {
		passes(t, a, b)
		s := r.session(t)
		return s != nil && s.Engine == admin.EngineLane
	})
}

// passes has a message pass each way between both ends of a session.
func passes(t *testing.T, a, b *net.TCPConn) {
	t.Helper()
	message, got := []byte("a message"), make([]byte, 9)
	for _, way := range [2][2]*net.TCPConn{{a, b}, {b, a}} {
		_ = way[1].SetReadDeadline(time.Now().Add(patience))
		if _, err := way[0].Write(message); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(way[1], got); err != nil || !bytes.Equal(got, message) {
			t.Fatal(err)
		}
	}
}

// laneQuestion is a session that has left user space, and whose client has asked its endpoint something since.
func laneQuestion(t *testing.T) (r *rig, c, server *net.TCPConn) {
	t.Helper()
	endpoint, far := laneEndpoint(t)
	r = start(t, laneConfig(endpoint, "lane: auto"))
	c = client(t, r.At("l"))
	server = <-far
	r.leavesFor(t, c, server)
	if _, err := c.Write([]byte("a question")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, len("a question"))); err != nil {
		t.Fatal(err)
	}
	return r, c, server
}

// TestLaneGentleEnd: a session in the lane is ended gently when its endpoint has answered and all is acknowledged, and not before.
func TestLaneGentleEnd(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r, c, server := laneQuestion(t)
	gently := admin.EndQuery{All: true, Quiet: 50 * time.Millisecond, Grace: 300 * time.Millisecond}
	if ended, err := r.EndSessions(context.Background(), gently, "test"); err != nil || ended.Ended != 0 || ended.Kept != 1 {
		t.Fatal(ended, err)
	}
	if _, err := server.Write([]byte("an answer")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len("an answer"))); err != nil {
		t.Fatal(err)
	}
	gently.Grace = patience
	if ended, err := r.EndSessions(context.Background(), gently, "test"); err != nil || ended.Ended != 1 {
		t.Error(ended, err)
	}
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// TestLaneEndpointEnded: a session in the lane whose endpoint has ended is listed as such, is not waited for, and is quiet,
// though its client was the last to send.
func TestLaneEndpointEnded(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	r, c, server := laneQuestion(t)
	if err := server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if b, err := io.ReadAll(c); len(b) != 0 || err != nil {
		t.Fatal(b, err)
	}
	r.Until("it is listed as ended by its endpoint", func() bool {
		s := r.session(t)
		return s != nil && s.Engine == admin.EngineLane && s.State == string(worker.EndpointEnded)
	})
	gently := admin.EndQuery{All: true, Quiet: 50 * time.Millisecond, Grace: patience}
	if ended, err := r.EndSessions(context.Background(), gently, "test"); err != nil || ended.Ended != 1 {
		t.Error(ended, err)
	}
}

// TestLanePortAgain: a client that comes again from the port of a session that was reset in the lane leaves user space
// as well, once the lane has forgotten that session.
func TestLanePortAgain(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint, far := laneEndpoint(t)
	r := start(t, laneConfig(endpoint, "lane: auto"))
	at := net.JoinHostPort("127.0.0.1", sockets.Port(t))
	local, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d := net.Dialer{LocalAddr: local, Timeout: patience, Control: reuseAddress}
		conn, err := d.Dial("tcp", r.At("l"))
		if err != nil {
			t.Fatal(err)
		}
		c, server := conn.(*net.TCPConn), <-far
		r.leavesFor(t, c, server)
		_ = c.SetLinger(0)
		_ = c.Close()
		r.Until("the session has ended", func() bool { return r.session(t) == nil })
		_ = server.Close()
	}
}

func reuseAddress(_, _ string, c syscall.RawConn) (err error) {
	e := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) })
	return errors.Join(e, err)
}
