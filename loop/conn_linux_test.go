package loop_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	one := &served{s, l.Addr().String(), make(chan error, 4096), make(chan error, 1)}
	if s.Ended == nil {
		s.Ended = func(_ *loop.Conn, err error) { one.ended <- err }
	}
	go func() { one.over <- s.Serve(l) }()
	return one
}

func (s *served) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func (s *served) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(patience):
		t.Fatal("no handler has ended")
	}
	return nil
}

// says writes text, and expects an answer.
func says(t *testing.T, c net.Conn, text, answer string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	hears(t, c, answer)
}

func hears(t *testing.T, c io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("%q, %v; want %q", b, err, want)
	}
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
	if got, err := io.ReadAll(d); string(got) != "abcdef" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := peeks.end(t); err != nil {
		t.Error(err)
	}
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
	hears(t, c, "\x00")
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
	if most.Load() > 64<<10 {
		t.Errorf("%d bytes were pending", most.Load())
	}
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
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.TrimLeft(got, "\x00")
	if total := len(got) - len(text); fmt.Sprint(total) != string(text) {
		t.Errorf("%d bytes, and %q were written", total, text)
	}
	if err := s.end(t); err != nil {
		t.Error(err)
	}
}

// TestTLSOnALoop: crypto/tls over a Conn, as server and with a client that closes in good order.
func TestTLSOnALoop(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "loop.test")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		over := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
		b := make([]byte, 16<<10)
		for {
			n, err := over.Read(b)
			if err != nil {
				return err
			}
			if _, err := over.Write(b[:n]); err != nil {
				return err
			}
		}
	}})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(cert))
	var all sync.WaitGroup
	for range 20 {
		raw := s.dial(t)
		all.Go(func() {
			c := tls.Client(raw, &tls.Config{ServerName: "loop.test", RootCAs: roots})
			text := bytes.Repeat([]byte("secret "), 20_000)
			go func() { _, _ = c.Write(text) }()
			got := make([]byte, len(text))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, text) {
				t.Error(err)
			}
			c.Close()
		})
	}
	all.Wait()
	for range 20 {
		if err := s.end(t); err != io.EOF {
			t.Error(err)
		}
	}
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
			hears(t, c, "\x00")
		}
		_ = c.SetLinger(0)
		c.Close()
		if err := s.end(t); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
