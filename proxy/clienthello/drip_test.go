package clienthello_test

import (
	"crypto/tls"
	"net"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/clienthello"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A reader reads hellos as a proxy's loop does: it peeks when the socket is readable, which it
// is not before there are as many bytes as Length has returned.
type reader struct {
	tb        testing.TB
	fd, epoll int
	buf       [clienthello.Max]byte
	wakes     int
}

func newReader(tb testing.TB, c *net.TCPConn) *reader {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	check(tb, err)
	r := &reader{tb: tb, fd: sockets.FD(tb, c), epoll: epoll}
	check(tb, syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, r.fd, &syscall.EpollEvent{Events: syscall.EPOLLIN | -syscall.EPOLLET}))
	r.mark(1)
	return r
}

func (r *reader) close() { syscall.Close(r.epoll) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (r *reader) mark(n int) {
	check(r.tb, syscall.SetsockoptInt(r.fd, syscall.SOL_SOCKET, sys.SO_RCVLOWAT, n))
}

// read peeks at a hello until it is whole, parses it, and takes it out of the queue.
func (r *reader) read() clienthello.Info {
	var events [1]syscall.EpollEvent
	for {
		n, err := syscall.EpollWait(r.epoll, events[:], 60_000)
		if err == syscall.EINTR {
			continue
		}
		check(r.tb, err)
		if n == 0 {
			r.tb.Fatal("nothing was told of for a minute")
		}
		r.wakes++
		n, _, err = syscall.Recvfrom(r.fd, r.buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		check(r.tb, err)
		need, err := clienthello.Length(r.buf[:n])
		check(r.tb, err)
		if need > n {
			r.mark(need)
			continue
		}
		info, err := clienthello.Parse(r.buf[:n])
		check(r.tb, err)
		_, _, err = syscall.Recvfrom(r.fd, r.buf[:n], syscall.MSG_DONTWAIT)
		check(r.tb, err)
		r.mark(1)
		return info
	}
}

// send writes b in pieces of n bytes, each a segment of its own.
func send(tb testing.TB, c *net.TCPConn, b []byte, n int) {
	for len(b) > 0 {
		n := min(n, len(b))
		if _, err := c.Write(b[:n]); err != nil {
			tb.Error(err)
			return
		}
		b = b[n:]
	}
}

// TestDripWakes: a hello that comes a byte at a time wakes its reader a few times, and not for
// each byte.
func TestDripWakes(t *testing.T) {
	whole := says(t, &tls.Config{ServerName: "shop.example.com"})
	for name, test := range map[string]struct {
		bytes []byte
		piece int
		wakes int
	}{
		"at once":                     {whole, len(whole), 1},
		"a byte at a time":            {whole, 1, 3},
		"in 16 records, each at once": {cut(whole, 100), 105, 19},
		"in 16 records, each byte":    {cut(whole, 100), 1, 19},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := sockets.TCPPair(t)
			go send(t, client, test.bytes, test.piece)
			r := newReader(t, server)
			defer r.close()
			if info := r.read(); info.ServerName != "shop.example.com" {
				t.Errorf("got %+v", info)
			}
			// A few more may come when the window is small; for each byte would be hundreds.
			if r.wakes > test.wakes+10 {
				t.Errorf("woken %d times, want about %d", r.wakes, test.wakes)
			}
		})
	}
}
