package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// TestOutlivesWrapped: a side whose end was passed on is reset by a late write. The other side gets all that had come before, as
// slowly as it reads, whatever the failed side is wrapped in, and with a limit of bandwidth.
func TestOutlivesWrapped(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		a, b   network
		limits *relay.Limits
	}{
		"TLS":     {tlsOverTCP, tcp, nil},
		"to TLS":  {tcp, tlsOverTCP, nil},
		"wrapped": {wrappedTCP, tcp, nil},
		"limit":   {tcp, tcp, &relay.Limits{PerConnection: relay.Rates{Both: 1 << 30}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := newRelay(t, nil)
			r.SetLinger(time.Hour)
			g := (&driving{limits: c.limits}).newRig(t, r, c.a, c.b)
			sent := content(9, 256<<10)
			write(t, g.A, sent)
			condition.Await(t, "all is with the relay", func() bool { return unacknowledged(t, g.A) == 0 })
			must.Do(t, g.A.Close())
			condition.Await(t, "a write to A fails", func() bool { // the first one is answered by a reset
				write(t, g.B, []byte("late"))
				return g.session.Result().Reason != relay.ReasonNone
			})
			got, _ := io.ReadAll(g.B)
			if !bytes.Equal(got, sent) {
				t.Errorf("of %d bytes B gets %d", len(sent), len(got))
			}
			if res, err := g.wait(); res.Reason != relay.ReasonReset || res.Culprit != relay.SideA || err == nil || res.AToB.Lost != 0 {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// unacknowledged is how many bytes the peer of the TCP connection beneath c has not acknowledged.
func unacknowledged(t testing.TB, c net.Conn) (n int) {
	if inner, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = inner.NetConn()
	}
	control(t, c)(func(fd int) { n, _ = sys.SIOCOUTQ(fd) })
	return n
}

// duplex is a stream of two pipes, which has no deadlines.
type duplex struct {
	*io.PipeReader
	*io.PipeWriter
}

func (d duplex) Close() error { return errors.Join(d.PipeReader.Close(), d.PipeWriter.Close()) }

func newDuplex() (far, near duplex) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return duplex{r1, w2}, duplex{r2, w1}
}

// deliver1000 moves 1,000 bytes.
func deliver1000(from io.Writer, to io.Reader) error {
	sent := make(chan error, 1)
	go func() { _, err := from.Write(filler()[:1000]); sent <- err }()
	got := make([]byte, 1000)
	_, err := io.ReadFull(to, got)
	if err == nil && !isFiller(got, 0) {
		err = errors.New("other bytes came")
	}
	return errors.Join(err, <-sent)
}

// TestStream: a stream that is no connection is joined to one, both ways, until it ends or is cut.
func TestStream(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for name, end := range map[string]func(far duplex, out halfConn, cancel context.CancelFunc){
		"stream": func(far duplex, _ halfConn, _ context.CancelFunc) { far.PipeWriter.Close() },
		"other":  func(_ duplex, out halfConn, _ context.CancelFunc) { out.CloseWrite() },
		"cut":    func(_ duplex, _ halfConn, cancel context.CancelFunc) { cancel() },
	} {
		far, near := newDuplex()
		out, conn := tcp(t)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan relay.Result, 1)
		go func() { res, _ := r.Join(ctx, relay.Stream(near), conn); done <- res }()
		if err := deliver1000(far, out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := deliver1000(out, far); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		end(far, out, cancel)
		if name == "stream" { // which is half-closed: the other side goes on
			if err := expect(out, nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			out.CloseWrite()
		}
		res := <-done
		if (res.Reason == relay.ReasonCanceled) != (name == "cut") || res.AToB.Bytes() != 1000 || res.BToA.Bytes() != 1000 {
			t.Errorf("%s: %+v", name, res)
		}
		if _, err := far.PipeWriter.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: the stream is not closed: %v", name, err)
		}
		cancel()
	}
}

// TestStreamBesideAFailure: a stream without deadlines is closed as soon as it has the bytes of the side that failed.
func TestStreamBesideAFailure(t *testing.T) {
	t.Parallel()

	for _, flipped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			farA, a := newDuplex()
			farB, b := newDuplex()
			if flipped {
				a, b = b, a
			}
			done := make(chan relay.Result, 1)
			go func() {
				res, _ := must.Get(relay.Default())(t).Join(context.Background(), relay.Stream(a), relay.Stream(b))
				done <- res
			}()
			if err := deliver1000(farA, farB); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			farA.PipeWriter.CloseWithError(syscall.ECONNRESET)
			res := <-done
			if took := time.Since(began); took != 0 || res.Reason == relay.ReasonEOF || res.AToB.Bytes()+res.BToA.Bytes() != 1000 {
				t.Errorf("after %v: %+v", took, res)
			}
			if _, err := farB.PipeWriter.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the stream is not closed: %v", err)
			}
		})
	}
}

// TestStreamOfFile: a file is spliced beneath its stream.
func TestStreamOfFile(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	fds := must.Get(syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))(t)
	for _, fd := range fds {
		_ = syscall.SetNonblock(fd, true)
	}
	far, near := os.NewFile(uintptr(fds[0]), "far"), os.NewFile(uintptr(fds[1]), "near")
	defer far.Close()
	out, conn := tcp(t)
	done := make(chan relay.Result, 1)
	go func() { res, _ := r.Join(context.Background(), relay.Stream(near), conn); done <- res }()
	must.Do(t, deliver1000(far, out))
	far.Close()
	out.CloseWrite()
	if res := <-done; res.AToB.Spliced != 1000 {
		t.Errorf("%+v", res)
	}
}

// TestStreamOfConn: a connection is its own stream.
func TestStreamOfConn(t *testing.T) {
	t.Parallel()

	_, conn := tcp(t)
	if relay.Stream(conn) != net.Conn(conn) || relay.Stream(nil) != nil {
		t.Error("another one")
	}
}

// hides is a wrapper that shows nothing of its connection.
type hides struct{ net.Conn }

// lets lets a relay go beneath it.
type lets struct{ net.Conn }

func (l lets) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return l.Conn, nil, nil
}
func (l lets) RelayWriter() io.Writer { return l.Conn }

// unending is a stream whose Read nothing ends.
type unending struct {
	io.Reader
	io.Writer
}

func (unending) Close() error { return nil }

// TestReadThatNothingEnds: the other connection is closed all the same, so that its peer does not wait.
func TestReadThatNothingEnds(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	peer, near := tcp(t)
	silent, end := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		_, _ = r.Join(ctx, relay.Stream(unending{silent, io.Discard}), near)
		close(ended)
	}()
	cancel()
	_ = peer.SetReadDeadline(time.Now().Add(condition.Patience))
	must.Fail(peer.Read(make([]byte, 1)))(t, syscall.ECONNRESET)
	end.Close()
	<-ended
}

// TestResetBeneathWrappers: a reset passes a wrapper that shows its connection. One that does not is closed, and its peer sees an end of file.
func TestResetBeneathWrappers(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		wrap func(net.Conn) net.Conn
		want error
	}{
		"hides":     {func(c net.Conn) net.Conn { return hides{c} }, io.EOF},
		"NetConn":   {func(c net.Conn) net.Conn { return beneath{c} }, syscall.ECONNRESET},
		"Unwrapper": {func(c net.Conn) net.Conn { return lets{c} }, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			client, a := sockets.TCPPair(t)
			server, b := sockets.TCPPair(t)
			ended := make(chan error, 1)
			go func() {
				_, err := relay.Join(t.Context(), c.wrap(a), c.wrap(b))
				ended <- err
			}()
			write(t, server, []byte("x"))
			_ = client.SetReadDeadline(time.Now().Add(condition.Patience))
			readFull(t, client, make([]byte, 1))
			must.Do(t, errors.Join(server.SetLinger(0), server.Close()))
			if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, c.want) {
				t.Errorf("after a reset the client reads %d bytes, %v, want %v", n, err, c.want)
			}
			must.Is(t, <-ended, syscall.ECONNRESET)
		})
	}
}

// serveOnLoop serves on loopback until the test ends, and returns a client.
func serveOnLoop(t *testing.T, handle func(c *loop.Conn) error) (client *net.TCPConn, ended <-chan error) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := l.Addr().String()
	ends := make(chan error, 1)
	s := &loop.Server{Loops: 1, Handle: handle, Ended: func(_ *loop.Conn, err error) { ends <- err }}
	over := make(chan error, 1)
	go func() { over <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-over; !errors.Is(err, loop.ErrServerClosed) {
			t.Error(err)
		}
	})
	c := must.Get(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	return c.(*net.TCPConn), ends
}

// TestJoinLoopConn: a connection that a loop serves is refused, also beneath a wrapper, and is as it was.
func TestJoinLoopConn(t *testing.T) {
	t.Parallel()

	far, near := tcp(t)
	_ = far.SetReadDeadline(time.Now().Add(condition.Patience))
	c, ended := serveOnLoop(t, func(c *loop.Conn) error {
		if _, err := c.Next(1); err != nil {
			return err
		}
		for _, refused := range []net.Conn{c, relay.Prefixed(c, []byte("x")), relay.Wrap(c)} {
			if _, err := relay.Join(context.Background(), near, refused); !errors.Is(err, os.ErrInvalid) {
				return errors.New("it was joined")
			}
		}
		_, err := io.WriteString(c, "still here")
		return err
	})
	_, _ = io.WriteString(c, "x")
	sockets.ExpectAll(t, c, "still here")
	must.Do(t, <-ended)
	isReset(t, far)
}

// TestJoinDetached: a connection that was taken off its loop is joined, and spliced behind what was read ahead.
func TestJoinDetached(t *testing.T) {
	t.Parallel()

	far, near := tcp(t)
	_ = far.SetDeadline(time.Now().Add(condition.Patience))
	joined := make(chan relay.Result, 1)
	c, ended := serveOnLoop(t, func(c *loop.Conn) error {
		if _, err := c.Next(4); err != nil {
			return err
		}
		conn, ahead, err := c.Detach()
		if err != nil {
			return err
		}
		go func() {
			res, err := relay.Join(context.Background(), relay.Prefixed(conn, ahead), near)
			if err != nil {
				t.Error(err)
			}
			joined <- res
		}()
		return nil
	})
	_, _ = io.WriteString(c, "tellahead")
	sockets.Expect(t, far, "ahead")
	must.Do(t, <-ended)
	large := content(1, 4<<20)
	go func() { _, _ = c.Write(large); _ = c.CloseWrite() }()
	sockets.ExpectAll(t, far, string(large))
	far.Close()
	if res := <-joined; res.AToB.Spliced == 0 || res.AToB.Fallbacks != (relay.Fallbacks{}) {
		t.Errorf("%+v", res.AToB)
	}
}

// tcpMethods are the methods of a *net.TCPConn that Wrap and Metered pass on.
type tcpMethods interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
	SetNoDelay(noDelay bool) error
	SetKeepAlive(keepalive bool) error
	SetKeepAlivePeriod(d time.Duration) error
	SetKeepAliveConfig(config net.KeepAliveConfig) error
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
	SyscallConn() (syscall.RawConn, error)
}

var _ tcpMethods = (*net.TCPConn)(nil)

// TestWrappersPassMethodsOn: what a program sets by a wrapper is set at the socket, and errors.ErrUnsupported says that there is
// none.
func TestWrappersPassMethodsOn(t *testing.T) {
	t.Parallel()

	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"Wrap":    relay.Wrap,
		"Metered": func(c net.Conn) net.Conn { return relay.Metered(c, new(relay.Meter)) },
		"both":    func(c net.Conn) net.Conn { return relay.Wrap(relay.Metered(c, new(relay.Meter))) },
	} {
		far, near := tcp(t)
		c, ok := wrap(near).(tcpMethods)
		if !ok {
			t.Fatalf("%s has not all methods", name)
		}
		option := func(level, what int) int {
			return must.Get(syscall.GetsockoptInt(sockets.FD(t, c), level, what))(t)
		}
		if err := errors.Join(c.SetNoDelay(false), c.SetKeepAlive(true), c.SetKeepAlivePeriod(77*time.Second),
			c.SetReadBuffer(5000), c.SetWriteBuffer(6000), c.SetLinger(3)); err != nil {
			t.Error(name, err)
		}
		for what, want := range map[[2]int]int{
			{syscall.IPPROTO_TCP, syscall.TCP_NODELAY}:  0,
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}:  1,
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE}: 77,
			{syscall.SOL_SOCKET, syscall.SO_RCVBUF}:     10000,
			{syscall.SOL_SOCKET, syscall.SO_SNDBUF}:     12000,
		} {
			if got := option(what[0], what[1]); got != want {
				t.Errorf("%s: option %v is %d, want %d", name, what, got, want)
			}
		}
		if err := c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Count: 5}); err != nil || option(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT) != 5 {
			t.Error(name, err)
		}
		if err := c.CloseRead(); err != nil {
			t.Error(name, err)
		}
		if n, err := near.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Error(name, n, err)
		}
		if err := errors.Join(c.CloseWrite(), expect(far, nil)); err != nil {
			t.Error(name, err)
		}
		p, _ := net.Pipe()
		none := wrap(p).(tcpMethods)
		_, err := none.SyscallConn()
		for _, err := range []error{
			none.CloseRead(), none.CloseWrite(), none.SetLinger(0), none.SetNoDelay(true), none.SetKeepAlive(true), none.SetKeepAlivePeriod(1),
			none.SetKeepAliveConfig(net.KeepAliveConfig{}), none.SetReadBuffer(1), none.SetWriteBuffer(1), err,
		} {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Error(name, err)
			}
		}
	}
}

// A polite is a connection that says goodbye: its Close writes to the peer, and its Read answers the peer's goodbye.
type polite struct {
	net.Conn
	read chan struct{} // the goodbye was read; nil: there is none
}

func (p polite) NetConn() net.Conn { return p.Conn }

func (p polite) Close() error {
	_, err := p.Conn.Write([]byte("bye"))
	return errors.Join(err, p.Conn.Close())
}

func (p polite) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if p.read == nil || n == 0 {
		return n, err
	}
	close(p.read)
	for err == nil {
		_, err = p.Conn.Write([]byte("bye"))
	}
	return 0, io.EOF
}

// TestLastWords: a wrapper's Close can write to its peer when the session has ended cleanly.
func TestLastWords(t *testing.T) {
	t.Parallel()

	a, nearA := sockets.TCPPair(t)
	b, nearB := sockets.TCPPair(t)
	r := newRelay(t, &relay.Config{CloseOnEOF: true})
	s := r.NewSession(nearA, polite{Conn: nearB})
	must.Do(t, a.CloseWrite())
	if res, err := s.Run(t.Context()); err != nil || res.Reason != relay.ReasonEOF {
		t.Errorf("%+v, %v", res, err)
	}
	sockets.ExpectAll(t, b, "bye")
}

// TestWrapperEndsBeforeReset: an end of file that a wrapper has read is passed on as such, though the connection beneath was
// reset after it, because the peer was gone when the wrapper answered.
func TestWrapperEndsBeforeReset(t *testing.T) {
	t.Parallel()

	a, nearA := sockets.TCPPair(t)
	b, nearB := sockets.TCPPair(t)
	goodbye := make(chan struct{})
	r := newRelay(t, &relay.Config{CloseOnEOF: true})
	s := r.NewSession(polite{nearA, goodbye}, nearB)
	must.Get(a.Write([]byte("bye")))(t)
	go func() {
		<-goodbye
		_ = a.SetLinger(0)
		_ = a.Close()
	}()
	if res, err := s.Run(t.Context()); err != nil || res.Reason != relay.ReasonEOF {
		t.Errorf("%+v, %v", res, err)
	}
	sockets.ExpectAll(t, b, "")
}
