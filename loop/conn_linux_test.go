package loop_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// A served server tells how its handlers ended.
type served struct {
	*loop.Server
	addr  string
	ended chan error
	over  chan error // what Serve returned
}

// startServer serves on loopback until the test ends.
func startServer(t *testing.T, s *loop.Server) *served {
	t.Helper()
	one := startUnchecked(t, s)
	t.Cleanup(func() {
		s.Close()
		if err := <-one.over; !errors.Is(err, loop.ErrServerClosed) {
			t.Error(err)
		}
	})
	return one
}

// startUnchecked serves on loopback, and leaves the end to the test.
func startUnchecked(t *testing.T, s *loop.Server) *served {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	one := &served{s, l.Addr().String(), make(chan error, 4096), make(chan error, 1)}
	if s.Ended == nil {
		s.Ended = func(_ *loop.Conn, err error) { one.ended <- err }
	}
	go func() { one.over <- s.Serve(l) }()
	return one
}

func (s *served) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c := must.Get(net.Dial("tcp", s.addr))(t)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	return c.(*net.TCPConn)
}

func (s *served) end(t *testing.T) error {
	t.Helper()
	return condition.Receive(t, "a handler ends", s.ended)
}

// says writes text, and expects an answer.
func says(t *testing.T, c net.Conn, text, answer string) {
	t.Helper()
	must.Get(io.WriteString(c, text))(t)
	sockets.Expect(t, c, answer)
}

func echoes(c *loop.Conn) error {
	b := make([]byte, 32<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return err
		}
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
	}
}

// TestServeEcho: clients that send and read at once, in pieces of any size, get their bytes back, and a
// half-close ends the session after the last one.
func TestServeEcho(t *testing.T) {
	t.Parallel()

	s := startServer(t, &loop.Server{Handle: echoes})
	var all sync.WaitGroup
	for i := range 50 {
		c := s.dial(t)
		all.Go(func() {
			text := bytes.Repeat([]byte(fmt.Sprint("client ", i, ";")), 20_000+i)
			go func() {
				for rest := text; len(rest) > 0; {
					n := min(len(rest), 1+len(rest)%(1+i*1000))
					if _, err := c.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, text) {
				t.Errorf("%d of %d bytes, %v", len(got), len(text), err)
			}
		})
	}
	all.Wait()
	for range 50 {
		if err := s.end(t); err != io.EOF {
			t.Error(err)
		}
	}
}

// TestConnPeek: lines are found in what has come, whole or in pieces, and taken; a buffer is kept for no
// handler that waits for the first byte.
func TestConnPeek(t *testing.T) {
	t.Parallel()

	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		for {
			for bytes.IndexByte(c.Buffered(), '\n') < 0 {
				if err := c.More(); err != nil {
					return fmt.Errorf("%w with %q left", err, c.Buffered())
				}
			}
			line, err := c.Next(bytes.IndexByte(c.Buffered(), '\n') + 1)
			if err != nil {
				return err
			}
			if _, err := c.Write(bytes.ToUpper(line)); err != nil {
				return err
			}
		}
	}})
	c := s.dial(t)
	says(t, c, "one\ntwo\nthr", "ONE\nTWO\n")
	long := strings.Repeat("x", 30_000)
	says(t, c, "ee\n"+long+"\n", "THREE\n"+strings.ToUpper(long)+"\n")
	_, _ = io.WriteString(c, "rest")
	_ = c.CloseWrite()
	if err := s.end(t); err == nil || err.Error() != `EOF with "rest" left` {
		t.Error(err)
	}
	peeks := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		p, err := c.Peek(4)
		if err != nil {
			return err
		}
		first := string(p)
		if _, err := c.Peek(70_000); err == nil {
			t.Error("a peek at 70,000 bytes")
		}
		all, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(all), first) {
			return fmt.Errorf("%q, %w", first, err)
		}
		_, err = c.Write(all)
		return err
	}})
	d := peeks.dial(t)
	_, _ = io.WriteString(d, "ab")
	_, _ = io.WriteString(d, "cdef")
	_ = d.CloseWrite()
	sockets.ExpectAll(t, d, "abcdef")
	must.Do(t, peeks.end(t))
}

// TestConnBackpressure: a client that does not read stops the handler that writes, with little pending, and
// gets everything when it does.
func TestConnBackpressure(t *testing.T) {
	t.Parallel()

	const size = 32 << 20
	var written, most atomic.Int64
	sum := sha256.New()
	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		b := make([]byte, 10_000)
		for i := 0; written.Load() < size; i++ {
			for j := range b {
				b[j] = byte(i + j)
			}
			p := b[:1+i*7%len(b)]
			sum.Write(p)
			n, err := c.Write(p)
			if written.Add(int64(n)); err != nil || n != len(p) {
				return fmt.Errorf("%d of %d: %w", n, len(p), err)
			}
			most.Store(max(most.Load(), int64(c.Pending())))
		}
		return nil
	}})
	c := s.dial(t)
	sockets.Expect(t, c, "\x00")
	condition.Await(t, "bytes are pending", func() bool { return most.Load() >= 50<<10 })
	for last := int64(-1); written.Load() != last; time.Sleep(50 * time.Millisecond) {
		last = written.Load()
	}
	if written.Load() >= size {
		t.Error("the handler has written everything to a client that does not read")
	}
	got := sha256.New()
	got.Write([]byte{0})
	n, err := io.Copy(got, c)
	if err != nil || n+1 != written.Load() || !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
		t.Errorf("%d of %d bytes, %v", n+1, written.Load(), err)
	}
	if n := most.Load(); n > 64<<10 {
		t.Errorf("%d bytes were pending, at most; want 64 KiB", n)
	}
}

// TestConnClosed: the methods of a closed connection fail as net.Conn's do.
func TestConnClosed(t *testing.T) {
	t.Parallel()

	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		if err := c.Close(); err != nil {
			return err
		}
		for name, err := range map[string]error{
			"SetDeadline": c.SetDeadline(time.Now()), "SetReadDeadline": c.SetReadDeadline(time.Now()), "SetWriteDeadline": c.SetWriteDeadline(time.Now()),
			"Flush": c.Flush(), "CloseWrite": c.CloseWrite(), "Close": c.Close(),
		} {
			if !errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("%s: %w, want net.ErrClosed", name, err)
			}
		}
		return nil
	}})
	must.Get(io.ReadAll(s.dial(t)))(t)
	must.Do(t, s.end(t))
}

// TestConnDeadlines: a read and a write end at their deadlines with the error of package net, and the
// connection can be used afterwards.
func TestConnDeadlines(t *testing.T) {
	t.Parallel()

	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := c.Read(make([]byte, 1))
		if ne, ok := err.(net.Error); n != 0 || !ok || !ne.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("a read at its deadline: %d, %w", n, err)
		}
		if _, err := c.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("after its deadline: %w", err)
		}
		_ = c.SetReadDeadline(time.Time{})
		_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		total := 0
		for err = nil; err == nil; total += n {
			n, err = c.Write(make([]byte, 40_000))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("a write at its deadline: %w", err)
		}
		_ = c.SetWriteDeadline(time.Time{})
		if err := c.Flush(); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c, "%d", total)
		return err
	}})
	c := s.dial(t)
	// It is read when the handler's deadline has passed: the socket is full then.
	time.Sleep(100 * time.Millisecond)
	got := must.Get(io.ReadAll(c))(t)
	text := bytes.TrimLeft(got, "\x00")
	if total := len(got) - len(text); fmt.Sprint(total) != string(text) {
		t.Errorf("%d bytes, and %q were written", total, text)
	}
	must.Do(t, s.end(t))
}

// TestFarDeadline: a deadline beyond all clocks is none.
func TestFarDeadline(t *testing.T) {
	t.Parallel()

	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		_ = c.SetDeadline(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
		return echoes(c)
	}})
	says(t, s.dial(t), "ping", "ping")
}

// TestConnReset: a client resets; a handler that reads, and one that writes, gets the error of it.
func TestConnReset(t *testing.T) {
	t.Parallel()

	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		b, err := c.Next(1)
		if err != nil {
			return err
		}
		for writes := b[0] == 'w'; err == nil; {
			if writes {
				_, err = c.Write(make([]byte, 5000))
			} else {
				_, err = c.Read(make([]byte, 1))
			}
		}
		return err
	}})
	for _, what := range []string{"r", "w"} {
		c := s.dial(t)
		_, _ = io.WriteString(c, what)
		if what == "w" {
			sockets.Expect(t, c, "\x00")
		}
		_ = c.SetLinger(0)
		c.Close()
		if err := s.end(t); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDetach: a handler gives its connection away, with the bytes that it has read ahead, and all that was written
// before has gone.
func TestDetach(t *testing.T) {
	t.Parallel()

	const size = 4 << 20
	for _, callbacks := range []bool{false, true} {
		t.Run(fmt.Sprintf("callbacks %t", callbacks), func(t *testing.T) {
			s := startServer(t, &loop.Server{Loops: 1, Callbacks: callbacks, Handle: func(c *loop.Conn) error {
				if c.Context() == nil {
					if _, err := c.Next(4); err != nil {
						return err
					}
					c.SetContext(true)
					if _, err := c.Write(make([]byte, size)); err != nil {
						return err
					}
				}
				conn, ahead, err := c.Detach()
				if err != nil {
					return err // ErrIdle, while much is pending
				}
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
					return fmt.Errorf("a read after Detach: %w", err)
				}
				if err := c.Go(func() {}); err == nil {
					return errors.New("Go after Detach")
				}
				go func() {
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(condition.Patience))
					_, _ = io.Copy(conn, io.MultiReader(bytes.NewReader(ahead), conn))
				}()
				return errors.New("detached")
			}})
			bystander := s.dial(t)
			c := s.dial(t)
			_ = c.SetReadBuffer(64 << 10)
			_, _ = io.WriteString(c, "pingahead")
			if n, err := io.CopyN(io.Discard, c, size); err != nil {
				t.Fatal(n, err)
			}
			// A callback is called again when bytes come.
			says(t, c, ", and more", "ahead, and more")
			if err := s.end(t); err == nil || err.Error() != "detached" {
				t.Error(err)
			}
			says(t, c, "still", "still")
			c.Close()
			_ = bystander.CloseWrite()
			if err := s.end(t); err != io.EOF {
				t.Error(err)
			}
		})
	}
}

// TestDetachLeavesTheLoop: a detached connection has nothing to do with its server any more.
func TestDetachLeavesTheLoop(t *testing.T) {
	t.Parallel()

	given := make(chan net.Conn, 1)
	s := startUnchecked(t, &loop.Server{Loops: 1, Handle: func(c *loop.Conn) error {
		_ = c.SetDeadline(time.Now().Add(time.Millisecond))
		conn, _, err := c.Detach()
		if err != nil {
			return err
		}
		given <- conn
		return loop.ErrIdle
	}})
	c := s.dial(t)
	conn := <-given
	defer conn.Close()
	must.Do(t, s.end(t))
	s.Close()
	must.Is(t, <-s.over, loop.ErrServerClosed)
	_, _ = io.WriteString(c, "ping")
	sockets.Expect(t, conn, "ping")
	_, _ = io.WriteString(conn, "pong")
	sockets.Expect(t, c, "pong")
}

// TestEndedKnowsAddresses: both addresses are known when a connection ends, however it does.
func TestEndedKnowsAddresses(t *testing.T) {
	t.Parallel()

	type end struct{ local, remote net.Addr }
	ends := make(chan end, 1)
	s := startServer(t, &loop.Server{Handle: echoes, Ended: func(c *loop.Conn, _ error) {
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write: %v", err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a read")
		}
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a close: %v", err)
		}
		ends <- end{c.LocalAddr(), c.RemoteAddr()}
	}})
	for _, reset := range []bool{false, true} {
		c := s.dial(t)
		says(t, c, "a", "a")
		if reset {
			_ = c.SetLinger(0)
		}
		local := c.LocalAddr().String()
		c.Close()
		e := <-ends
		if e.local == nil || e.local.String() != s.addr || e.remote.String() != local {
			t.Errorf("%v from %v, want %s from %s", e.local, e.remote, s.addr, local)
		}
	}
}

// TestBufferFull: neither more than 64 KiB nor less than nothing can be looked at, and nothing is lost by the attempt.
func TestBufferFull(t *testing.T) {
	t.Parallel()

	const most = 65536
	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		if _, err := c.Peek(most + 1); !errors.Is(err, loop.ErrBufferFull) || !strings.Contains(err.Error(), "65536") {
			return fmt.Errorf("Peek: %w", err)
		}
		if _, err := c.Next(most + 1); !errors.Is(err, loop.ErrBufferFull) {
			return fmt.Errorf("Next: %w", err)
		}
		for _, read := range []func(int) ([]byte, error){c.Peek, c.Next} {
			if b, err := read(-1); b != nil || !errors.Is(err, bufio.ErrNegativeCount) {
				return fmt.Errorf("-1: %q, %w", b, err)
			}
		}
		if b, err := c.Peek(most); len(b) < most || err != nil {
			return fmt.Errorf("%d bytes: %w", len(b), err)
		}
		if err := c.More(); !errors.Is(err, loop.ErrBufferFull) {
			return fmt.Errorf("More: %w", err)
		}
		b, err := c.Next(most)
		if err == nil {
			_, err = c.Write(b)
		}
		return err
	}})
	c := s.dial(t)
	text := bytes.Repeat([]byte("0123456789abcdef"), most/16)
	_, _ = c.Write(text)
	sockets.Expect(t, c, string(text))
	must.Do(t, s.end(t))
}

// TestShortReads: a read stops at urgent data, and on a unix socket at descriptors. The bytes behind them have come
// as well, and no further event tells of them.
func TestShortReads(t *testing.T) {
	t.Parallel()

	for _, network := range []string{"tcp", "unix"} {
		for _, callbacks := range []bool{false, true} {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = sockets.Dir(t) + "/s"
			}
			l := must.Get(net.Listen(network, address))(t)
			ended, blocked, sent := make(chan error, 1), make(chan struct{}), make(chan struct{})
			s := &loop.Server{Callbacks: callbacks, Ended: func(_ *loop.Conn, err error) { ended <- err }, Handle: func(c *loop.Conn) error {
				if c.Context() == nil {
					c.SetContext(true)
					_ = c.Loop().Post(func() { close(blocked); <-sent }) // all comes before the loop looks for events
				}
				line, err := c.Next(9)
				if err == nil {
					_, err = c.Write(line)
				}
				return err
			}}
			go func() { _ = s.Serve(l) }()
			t.Cleanup(func() { s.Close() })
			c := must.Get(net.Dial(network, l.Addr().String()))(t)
			t.Cleanup(func() { c.Close() })
			condition.Receive(t, "the loop is held up", blocked)
			must.Get(io.WriteString(c, "abc"))(t)
			if network == "unix" {
				_, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte("def"), syscall.UnixRights(0), nil)
				must.Do(t, err)
			} else {
				must.Get(sys.Send(sockets.FD(t, c.(*net.TCPConn)), []byte("def!"), sys.MSG_OOB))(t)
			}
			must.Get(io.WriteString(c, "ghi"))(t)
			if network == "tcp" {
				condition.Await(t, "the kernel has acknowledged all", func() bool {
					n, err := sys.SIOCOUTQ(sockets.FD(t, c.(*net.TCPConn)))
					return n == 0 && err == nil
				})
			}
			close(sent)
			_ = c.SetDeadline(time.Now().Add(condition.Patience))
			sockets.Expect(t, c, "abcdefghi")
			must.Do(t, condition.Receive(t, "the handler ends", ended))
		}
	}
}

// TestMemoryOfIdleHandlers: heap and stack of a connection that has had its bytes echoed and waits.
func TestMemoryOfIdleHandlers(t *testing.T) {
	for name, way := range map[string]struct {
		handle    func(*loop.Conn) error
		callbacks bool
		most      int64 // bytes
	}{
		"coroutine waits in Next": {echoNext, false, 3000},
		"ErrIdle":                 {echoOnce, false, 500},
		"callback":                {echoOnce, true, 500},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if !privilege.InChild(t) { // the runtime uses what other tests have left again
				return
			}
			s := startServer(t, &loop.Server{Handle: way.handle, Callbacks: way.callbacks, Ended: func(*loop.Conn, error) {}})
			each := idleMemory(t, netip.MustParseAddrPort(s.addr))
			t.Logf("%d bytes", each)
			if each > way.most && !race.Enabled {
				t.Errorf("%d bytes, more than %d", each, way.most)
			}
		})
	}
}

// idleMemory opens connections, and returns what one of them takes. The first are not counted: with them come
// the tables and the buffers, and the size of stack that the runtime begins with depends on the mean of those
// that there are (gcComputeStartingStackSize in its stack.go).
func idleMemory(t *testing.T, to netip.AddrPort) int64 {
	t.Helper()
	const first, n, batch = 1000, 4000, 250
	clients := make([]int, 0, first+n)
	defer func() {
		for _, fd := range clients {
			_ = syscall.Close(fd)
		}
	}()
	for range first {
		clients = append(clients, ask(t, to))
	}
	before := inUse()
	for i := range n {
		clients = append(clients, ask(t, to))
		if i%batch == 0 {
			runtime.GC()
		}
	}
	return (inUse() - before) / n
}

// inUse is the heap and the stacks, without garbage.
func inUse() int64 {
	for range 3 { // what is in a sync.Pool goes with the second one
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// ask has four bytes echoed to a socket that takes no memory of this process.
func ask(t *testing.T, to netip.AddrPort) (fd int) {
	t.Helper()
	fd = must.Get(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	must.Do(t, syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}))
	b := []byte("ping")
	must.Get(syscall.Write(fd, b))(t)
	must.Get(syscall.Read(fd, b))(t)
	return fd
}

func echoNext(c *loop.Conn) error {
	for {
		b, err := c.Next(4)
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

// echoOnce serves as a callback, too.
func echoOnce(c *loop.Conn) error {
	b, err := c.Next(len(c.Buffered()))
	if err == nil {
		_, err = c.Write(b)
	}
	if err != nil {
		return err
	}
	return loop.ErrIdle
}
