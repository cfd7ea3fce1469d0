package relay_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

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
		option := func(level, what int) (value int) {
			raw, err := c.SyscallConn()
			if err == nil {
				err = raw.Control(func(fd uintptr) { value, _ = syscall.GetsockoptInt(int(fd), level, what) })
			}
			if err != nil {
				t.Fatal(err)
			}
			return value
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

// TestFileSeesWrappers: package os splices from what has a SyscallConn of package net. It must not go beneath a meter, or past
// bytes that were read ahead.
func TestFileSeesWrappers(t *testing.T) {
	t.Parallel()

	for name, wrap := range map[string]func(net.Conn, *relay.Meter) net.Conn{
		"metered":  relay.Metered,
		"prefixed": func(c net.Conn, m *relay.Meter) net.Conn { return relay.Metered(relay.Prefixed(c, []byte("head")), m) },
	} {
		far, near := tcp(t)
		m := new(relay.Meter)
		c := wrap(near, m)
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, _ = far.Write([]byte("body"))
		_ = far.CloseWrite()
		n, err := io.Copy(f, struct{ io.Reader }{c})
		if err != nil {
			t.Fatal(err)
		}
		far, near = tcp(t)
		c = wrap(near, m)
		_, _ = far.Write([]byte("body"))
		_ = far.CloseWrite()
		more, err := f.ReadFrom(c)
		got, _ := os.ReadFile(f.Name())
		if read, _ := m.Bytes(); err != nil || n != more || read != n+more || !bytes.Equal(got[n:], got[:n]) || len(got) != int(n+more) {
			t.Errorf("%s: %d and %d bytes, %v; the meter has %d; %q", name, n, more, err, read, got)
		}
	}
}
