package sockopt_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/sockopt"
)

func TestMain(m *testing.M) { leak.Main(m) }

// listen returns a listening socket with the options set, and no others.
func listen(t *testing.T, o sockopt.Options) *net.TCPListener {
	t.Helper()
	lc := net.ListenConfig{KeepAlive: sockopt.NetKeepAlive, Control: o.Control}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener)
}

func TestOptions(t *testing.T) {
	type values map[int]int // by option
	tcp := values{
		sys.TCP_NODELAY: 1, sys.TCP_KEEPIDLE: 60, sys.TCP_KEEPINTVL: 10, sys.TCP_USER_TIMEOUT: 30_000,
	}
	for name, c := range map[string]struct {
		options     sockopt.Options
		keepAlive   int
		idle, limit int
		interval    int // 0: the default
	}{
		"defaults": {keepAlive: 1, idle: tcp[sys.TCP_KEEPIDLE], limit: tcp[sys.TCP_USER_TIMEOUT]},
		"chosen":   {options: sockopt.Options{KeepAlive: 41500 * time.Millisecond, UserTimeout: 43 * time.Second}, keepAlive: 1, idle: 42, limit: 43_000},
		"short":    {options: sockopt.Options{UserTimeout: 1}, keepAlive: 1, idle: 60, limit: 1, interval: 1},
		"long":     {options: sockopt.Options{UserTimeout: 600 * time.Hour}, keepAlive: 1, idle: 60, limit: math.MaxInt32},
		"off":      {options: sockopt.Options{KeepAlive: -1, UserTimeout: -1}, keepAlive: 0, idle: -1, limit: 0},
	} {
		t.Run(name, func(t *testing.T) {
			fd := sockets.FD(t, listen(t, c.options))
			check(t, fd, sys.SOL_SOCKET, sys.SO_OOBINLINE, 1)
			check(t, fd, sys.SOL_SOCKET, sys.SO_KEEPALIVE, c.keepAlive)
			check(t, fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1)
			check(t, fd, sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, c.limit)
			if got := c.options.SetUserTimeout(); got != time.Duration(c.limit)*time.Millisecond {
				t.Errorf("it says that %v are set", got)
			}
			if c.idle >= 0 {
				check(t, fd, sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, c.idle)
				check(t, fd, sys.IPPROTO_TCP, sys.TCP_KEEPINTVL, cmp.Or(c.interval, tcp[sys.TCP_KEEPINTVL]))
			}
		})
	}
}

func check(t *testing.T, fd, level, option, want int) {
	t.Helper()
	got, err := sys.GetsockoptInt(fd, level, option)
	if err != nil || got != want {
		t.Errorf("getsockopt(%d, %d) = %d, %v, want %d", level, option, got, err, want)
	}
}

// The reason for which sessions take UserTimeout off a socket with a closed window: a live peer that only does not read for
// that long is cut.
func TestUserTimeoutCutsAPausedReader(t *testing.T) {
	ln := listen(t, sockopt.Options{})
	dialer := net.Dialer{KeepAlive: sockopt.NetKeepAlive, Control: sockopt.Options{UserTimeout: 50 * time.Millisecond}.Control}
	writer, err := dialer.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	reader, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	writer.SetWriteDeadline(time.Now().Add(condition.Patience))
	for err == nil {
		_, err = writer.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, syscall.ETIMEDOUT) {
		t.Fatalf("write to a reader that pauses: %v, want ETIMEDOUT", err)
	}
}
