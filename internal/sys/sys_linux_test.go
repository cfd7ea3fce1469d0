package sys_test

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// newPipe makes a pipe that lives as long as the test.
func newPipe(t *testing.T) (r, w int) {
	t.Helper()
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sys.Close(r)
		sys.Close(w)
	})
	return r, w
}

func want[T comparable](t *testing.T, what string, got T, err error, wanted T, wantErr error) {
	t.Helper()
	if got != wanted || err != wantErr {
		t.Errorf("%s: %v, %v; want %v, %v", what, got, err, wanted, wantErr)
	}
}

func TestPipe(t *testing.T) {
	pipequota.Share(t)
	r, w := newPipe(t)
	n, err := sys.PipeSize(r)
	want(t, "size", n, err, 16*os.Getpagesize(), nil)
	n, err = sys.SetPipeSize(w, 100<<10)
	want(t, "set size", n, err, 128<<10, nil)
	n, err = sys.PipeSize(r)
	want(t, "size", n, err, 128<<10, nil)
	flags, err := sys.GetFl(r)
	want(t, "O_NONBLOCK", flags&sys.O_NONBLOCK, err, sys.O_NONBLOCK, nil)
	mode, err := sys.FstatMode(r)
	want(t, "type", mode&sys.S_IFMT, err, sys.S_IFIFO, nil)

	b := make([]byte, 10)
	n, err = sys.Read(r, b)
	want(t, "read of nothing", n, err, 0, error(syscall.EAGAIN))
	n, err = sys.Write(w, []byte("hello"))
	want(t, "write", n, err, 5, nil)
	n, err = sys.FIONREAD(r)
	want(t, "FIONREAD", n, err, 5, nil)
	n, err = sys.Read(r, b)
	want(t, "read", string(b[:n]), err, "hello", nil)
}

func TestErrors(t *testing.T) {
	n, err := sys.Read(-1, nil)
	want(t, "read", n, err, 0, error(syscall.EBADF))
	n, err = sys.Write(-1, nil)
	want(t, "write", n, err, 0, error(syscall.EBADF))
	n, err = sys.Splice(-1, nil, -1, nil, 1, 0)
	want(t, "splice", n, err, 0, error(syscall.EBADF))
	n, err = sys.Sendfile(-1, -1, nil, 1)
	want(t, "sendfile", n, err, 0, error(syscall.EBADF))
	n, err = sys.Recv(-1, nil, 0)
	want(t, "recv", n, err, 0, error(syscall.EBADF))
	n, err = sys.Send(-1, nil, 0)
	want(t, "send", n, err, 0, error(syscall.EBADF))
	if err := sys.Close(-1); err != syscall.EBADF {
		t.Errorf("close: %v, want EBADF", err)
	}
	_, _, err = sys.Pipe2(-1)
	if err != syscall.EINVAL {
		t.Errorf("pipe2: %v, want EINVAL", err)
	}
}

func TestSpliceAndSendfile(t *testing.T) {
	r, w := newPipe(t)
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("0123456789"); err != nil {
		t.Fatal(err)
	}
	fd := sockets.FD(t, f)
	mode, err := sys.FstatMode(fd)
	want(t, "type", mode&sys.S_IFMT, err, sys.S_IFREG, nil)

	off := int64(2)
	n, err := sys.Splice(fd, &off, w, nil, 3, sys.SPLICE_F_NONBLOCK)
	want(t, "splice", n, err, 3, nil)
	want(t, "offset", off, nil, 5, nil)
	b := make([]byte, 10)
	n, err = sys.Read(r, b)
	want(t, "spliced", string(b[:n]), err, "234", nil)

	c, s := sockets.TCPPair(t)
	off = 7
	n, err = sys.Sendfile(sockets.FD(t, c), fd, &off, 100)
	want(t, "sendfile", n, err, 3, nil)
	want(t, "offset", off, nil, 10, nil)
	_, err = io.ReadFull(s, b[:3])
	want(t, "sent", string(b[:3]), err, "789", nil)
}

func TestSocket(t *testing.T) {
	c, s := sockets.TCPPair(t)
	cfd, sfd := sockets.FD(t, c), sockets.FD(t, s)
	mode, err := sys.FstatMode(cfd)
	want(t, "type", mode&sys.S_IFMT, err, sys.S_IFSOCK, nil)
	state, err := sys.TCPState(cfd)
	want(t, "state", state, err, sys.TCP_ESTABLISHED, nil)

	b := make([]byte, 10)
	n, err := sys.Recv(sfd, b, sys.MSG_PEEK|sys.MSG_DONTWAIT)
	want(t, "peek at nothing", n, err, 0, error(syscall.EAGAIN))
	n, err = sys.Send(cfd, []byte("hello"), sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT)
	want(t, "send", n, err, 5, nil)
	for n = 0; n < 5; n, err = sys.FIONREAD(sfd) {
	}
	want(t, "FIONREAD", n, err, 5, nil)
	n, err = sys.Recv(sfd, b[:1], sys.MSG_PEEK|sys.MSG_DONTWAIT)
	want(t, "peek", string(b[:n]), err, "h", nil)
	n, err = sys.Recv(sfd, b, sys.MSG_DONTWAIT)
	want(t, "recv", string(b[:n]), err, "hello", nil)

	c.CloseWrite()
	for state != sys.TCP_CLOSE_WAIT {
		if state, err = sys.TCPState(sfd); err != nil {
			t.Fatal(err)
		}
	}
	n, err = sys.Recv(sfd, b, sys.MSG_PEEK|sys.MSG_DONTWAIT)
	want(t, "peek at the end", n, err, 0, nil)
	n, err = sys.Send(cfd, b, sys.MSG_NOSIGNAL)
	want(t, "send after the end", n, err, 0, error(syscall.EPIPE))
}

// TestSendQueue: what a peer does not read stays in the send queue.
func TestSendQueue(t *testing.T) {
	c, _ := sockets.TCPPair(t)
	fd := sockets.FD(t, c)
	n, err := sys.SIOCOUTQ(fd)
	want(t, "SIOCOUTQ", n, err, 0, nil)
	b := make([]byte, 64<<10)
	for err = nil; err == nil; {
		_, err = sys.Send(fd, b, sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT)
	}
	if err != syscall.EAGAIN {
		t.Fatal(err)
	}
	all, err := sys.SIOCOUTQ(fd)
	if err != nil || all == 0 {
		t.Errorf("SIOCOUTQ: %d, %v; want some", all, err)
	}
	unsent, err := sys.SIOCOUTQNSD(fd)
	if err != nil || unsent == 0 || unsent > all {
		t.Errorf("SIOCOUTQNSD: %d of %d, %v; want some", unsent, all, err)
	}
}

func TestSocketPair(t *testing.T) {
	a, b, err := sys.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(a)
	defer sys.Close(b)
	n, err := sys.Write(a, []byte("x"))
	want(t, "write", n, err, 1, nil)
	n, err = sys.Read(b, make([]byte, 2))
	want(t, "read", n, err, 1, nil)
}

// TestCapabilities compares with /proc, in hexadecimal there.
func TestCapabilities(t *testing.T) {
	set, err := sys.Capabilities()
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	if got := effective(t, string(status)); got != uint64(set) {
		t.Fatalf("%#x, want %#x", set, got)
	}
	if s := sys.CapSet(1 << sys.CAP_SYS_ADMIN); !s.Has(sys.CAP_SYS_ADMIN) || s.Has(sys.CAP_SYS_RESOURCE) {
		t.Fatal("Has looks at another bit")
	}
}

func TestRlimitNoFile(t *testing.T) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	n, err := sys.RlimitNoFile()
	want(t, "RLIMIT_NOFILE", n, err, l.Cur, nil)
}

// TestNoAllocations covers what is called while bytes move.
func TestNoAllocations(t *testing.T) {
	r, w := newPipe(t)
	c, s := sockets.TCPPair(t)
	cfd, sfd := sockets.FD(t, c), sockets.FD(t, s)
	b := make([]byte, 10)
	var off int64
	for name, f := range map[string]func(){
		"splice, EAGAIN": func() { sys.Splice(sfd, nil, w, nil, 1, sys.SPLICE_F_NONBLOCK) },
		"splice, EBADF":  func() { sys.Splice(-1, &off, w, nil, 1, sys.SPLICE_F_NONBLOCK) },
		"read":           func() { sys.Read(r, b) },
		"write":          func() { sys.Write(-1, b) },
		"recv":           func() { sys.Recv(sfd, b, sys.MSG_PEEK|sys.MSG_DONTWAIT) },
		"send":           func() { sys.Send(-1, b, sys.MSG_DONTWAIT) },
		"sendfile":       func() { sys.Sendfile(-1, -1, nil, 1) },
		"FIONREAD":       func() { sys.FIONREAD(sfd) },
		"SIOCOUTQ":       func() { sys.SIOCOUTQ(cfd) },
		"TCPState":       func() { sys.TCPState(cfd) },
		"FstatMode":      func() { sys.FstatMode(cfd) },
		"GetFl":          func() { sys.GetFl(cfd) },
		"PipeSize":       func() { sys.PipeSize(r) },
		"Pipe2": func() {
			if r, w, err := sys.Pipe2(sys.O_CLOEXEC); err == nil {
				sys.Close(r)
				sys.Close(w)
			}
		},
	} {
		if n := testing.AllocsPerRun(50, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func effective(t *testing.T, status string) (set uint64) {
	t.Helper()
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:\t"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
	}
	t.Fatal("no CapEff")
	return 0
}

// TestHasError: a reset is an error until it is read, an end of file is none.
func TestHasError(t *testing.T) {
	near, far := sockets.TCPPair(t)
	fd := sockets.FD(t, near)
	if sys.HasError(fd) {
		t.Error("an error at first")
	}
	far.SetLinger(0)
	far.Close()
	condition.Await(t, "the reset", func() bool { return sys.HasError(fd) })
	for range 2 { // it is still there
		if !sys.HasError(fd) {
			t.Error("no error after a reset")
		}
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) || sys.HasError(fd) {
		t.Errorf("%v, and then an error: %v", err, sys.HasError(fd))
	}
}
