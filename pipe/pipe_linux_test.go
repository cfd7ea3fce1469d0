package pipe_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/pipe"
)

// open opens a pipe that lives as long as the test.
func open(t testing.TB, size int) *pipe.Pipe {
	t.Helper()
	p, err := pipe.Open(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// tcp returns a connection and the descriptor of its second end.
func tcp(t testing.TB) (far, near *net.TCPConn, fd int) {
	t.Helper()
	far, near = sockets.TCPPair(t)
	return far, near, sockets.FD(t, near)
}

// await polls until cond holds.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 10 s: %s", what)
		}
	}
}

// arrived waits until n bytes are queued at fd.
func arrived(t testing.TB, fd, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d bytes queued", n), func() bool {
		got, err := sys.FIONREAD(fd)
		return err == nil && got >= n
	})
}

// send writes b and waits until it is queued at fd, which is empty.
func send(t testing.TB, far io.Writer, fd int, b []byte) {
	t.Helper()
	if _, err := far.Write(b); err != nil {
		t.Fatal(err)
	}
	arrived(t, fd, len(b))
}

// fill fills p with n bytes out of a socket of its own.
func fill(t testing.TB, p *pipe.Pipe, n int) []byte {
	t.Helper()
	b := random(n)
	far, _, fd := tcp(t)
	send(t, far, fd, b)
	for m := 0; m < n; {
		k, err := p.Fill(fd, n-m)
		if err != nil || k == 0 {
			t.Fatalf("fill: %d, %v", k, err)
		}
		m += k
	}
	return b
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

func wantErr(t testing.TB, n int, err, want error) {
	t.Helper()
	if n != 0 || !errors.Is(err, want) {
		t.Fatalf("got %d, %v; want 0, %v", n, err, want)
	}
}

func TestOpenSizes(t *testing.T) {
	for _, c := range []struct{ ask, want int }{
		{0, 64 << 10},
		{1, 4 << 10},
		{4 << 10, 4 << 10},
		{64 << 10, 64 << 10},
		{64<<10 + 1, 128 << 10},
		{1 << 20, 1 << 20},
	} {
		p := open(t, c.ask)
		if p.Size() != max(c.want, os.Getpagesize()) || p.Len() != 0 {
			t.Errorf("Open(%d): size %d with %d bytes, want %d and empty", c.ask, p.Size(), p.Len(), c.want)
		}
	}
	if _, err := pipe.Open(-1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Open(-1): %v, want EINVAL", err)
	}
}

// TestOpenAboveMax: a refusal of the kernel shows in the size, not in an error.
func TestOpenAboveMax(t *testing.T) {
	if !privilege.Ordinary(t) {
		return
	}
	if p := open(t, 1<<30); p.Size() != pipe.DefaultSize {
		t.Fatalf("size %d, want the default", p.Size())
	}
}

func TestFillDrain(t *testing.T) {
	for name, pair := range map[string]func(t *testing.T) (w io.Writer, r io.Reader, wfd, rfd int){
		"tcp": func(t *testing.T) (io.Writer, io.Reader, int, int) {
			a, b := sockets.TCPPair(t)
			return a, b, sockets.FD(t, a), sockets.FD(t, b)
		},
		"unix": func(t *testing.T) (io.Writer, io.Reader, int, int) {
			a, b := sockets.UnixPair(t)
			return a, b, sockets.FD(t, a), sockets.FD(t, b)
		},
		"file": func(t *testing.T) (io.Writer, io.Reader, int, int) {
			path := filepath.Join(t.TempDir(), "f")
			w, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { w.Close() })
			r, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			return w, r, sockets.FD(t, w), sockets.FD(t, r)
		},
	} {
		for _, n := range []int{1, 100, 4096, 60000} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				p := open(t, 0)
				w, _, _, rfd := pair(t)
				_, r, wfd, _ := pair(t)
				in := random(n)
				if _, err := w.Write(in); err != nil {
					t.Fatal(err)
				}
				for p.Len() < n {
					held := p.Len()
					m, err := p.Fill(rfd, n)
					if err != nil || m <= 0 || p.Len() != held+m {
						t.Fatalf("fill: %d, %v; holds %d, held %d", m, err, p.Len(), held)
					}
				}
				for p.Len() > 0 {
					held := p.Len()
					m, err := p.Drain(wfd, n)
					if err != nil || m <= 0 || p.Len() != held-m {
						t.Fatalf("drain: %d, %v; holds %d, held %d", m, err, p.Len(), held)
					}
				}
				out := make([]byte, n)
				if _, err := io.ReadFull(r, out); err != nil || !bytes.Equal(in, out) {
					t.Fatalf("%v, or other bytes", err)
				}
			})
		}
	}
}

// TestFilePosition: files are read and written at their own positions, which move
// along.
func TestFilePosition(t *testing.T) {
	p := open(t, 0)
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("0123456789"); err != nil {
		t.Fatal(err)
	}
	fd := sockets.FD(t, f)
	if n, err := p.Fill(fd, 5); n != 0 || err != nil {
		t.Fatalf("at the end: %d, %v; want 0 and no error", n, err)
	}
	f.Seek(2, io.SeekStart)
	if n, err := p.Fill(fd, 3); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := p.Drain(fd, 10); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if got, _ := os.ReadFile(f.Name()); string(got) != "0123423489" {
		t.Fatalf("file is %q", got)
	}
	if at, _ := f.Seek(0, io.SeekCurrent); at != 8 {
		t.Fatalf("position %d, want 8", at)
	}
}

func TestMax(t *testing.T) {
	p := open(t, 0)
	far, _, fd := tcp(t)
	send(t, far, fd, []byte("hello"))
	for _, max := range []int{0, -1} {
		n, err := p.Fill(fd, max)
		wantErr(t, n, err, syscall.EINVAL)
		n, err = p.Drain(fd, max)
		wantErr(t, n, err, syscall.EINVAL)
	}
	if n, err := p.Fill(fd, 4); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := p.Drain(fd, 3); n != 3 || err != nil || p.Len() != 1 {
		t.Fatal(n, err, p.Len())
	}
	if n, err := p.Drain(fd, 100); n != 1 || err != nil || p.Len() != 0 {
		t.Fatal(n, err, p.Len())
	}
	if n, err := p.Drain(-1, 100); n != 0 || err != nil {
		t.Fatalf("drain of an empty pipe: %d, %v; want 0 and no system call", n, err)
	}
}

func TestEndOfFile(t *testing.T) {
	p := open(t, 0)
	far, _, fd := tcp(t)
	n, err := p.Fill(fd, 100)
	wantErr(t, n, err, syscall.EAGAIN)
	send(t, far, fd, []byte("last"))
	if n, err := p.Fill(fd, 100); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	n, err = p.Fill(fd, 100)
	wantErr(t, n, err, pipe.ErrNotEmpty)
	if errors.Is(err, syscall.EAGAIN) {
		t.Fatal("ErrNotEmpty passes for EAGAIN")
	}
	far.CloseWrite()
	await(t, "end of file", func() bool {
		n, err = p.Fill(fd, 100)
		return n == 0 && err == nil
	})
	if p.Len() != 4 {
		t.Fatalf("holds %d, want 4", p.Len())
	}
}

func TestReset(t *testing.T) {
	p := open(t, 0)
	far, _, fd := tcp(t)
	far.SetLinger(0)
	far.Close()
	var n int
	var err error
	await(t, "reset", func() bool {
		n, err = p.Fill(fd, 100)
		return err != syscall.EAGAIN
	})
	wantErr(t, n, err, syscall.ECONNRESET)
}

// TestUrgent: one urgent byte makes Fill return EAGAIN, or end of file, with
// bytes queued. Fill's comment warns of that.
func TestUrgent(t *testing.T) {
	p := open(t, 0)
	far, _, fd := tcp(t)
	if _, err := sys.Send(sockets.FD(t, far), []byte("!"), sys.MSG_OOB|sys.MSG_NOSIGNAL); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write([]byte("after")); err != nil {
		t.Fatal(err)
	}
	peek := make([]byte, 10)
	await(t, "bytes after the urgent one", func() bool {
		n, err := sys.Recv(fd, peek, sys.MSG_PEEK|sys.MSG_DONTWAIT)
		return err == nil && string(peek[:n]) == "after"
	})
	if n, err := p.Fill(fd, 100); n != 0 || err != nil && err != syscall.EAGAIN {
		t.Skipf("this kernel splices past an urgent byte: %d, %v", n, err)
	}
}

// TestBrokenDestination: after an error of the destination the bytes are still
// there, in order, and Read gets at them.
func TestBrokenDestination(t *testing.T) {
	p := open(t, 0)
	in := fill(t, p, 3000)
	_, near, dst := tcp(t)
	near.CloseWrite()
	n, err := p.Drain(dst, p.Len())
	wantErr(t, n, err, syscall.EPIPE)
	wantResidue(t, p, in)
}

// TestAppend: splice refuses a file opened with O_APPEND (splice(2)).
func TestAppend(t *testing.T) {
	p := open(t, 0)
	in := fill(t, p, 3000)
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := p.Drain(sockets.FD(t, f), p.Len())
	wantErr(t, n, err, syscall.EINVAL)
	wantResidue(t, p, in)
}

func wantResidue(t *testing.T, p *pipe.Pipe, want []byte) {
	t.Helper()
	if p.Len() != len(want) {
		t.Fatalf("holds %d bytes, want %d", p.Len(), len(want))
	}
	first := make([]byte, 7)
	if n, err := p.Read(first); n != len(first) || err != nil || p.Len() != len(want)-n {
		t.Fatalf("read %d, %v; holds %d", n, err, p.Len())
	}
	rest, err := io.ReadAll(p)
	if err != nil || !bytes.Equal(append(first, rest...), want) {
		t.Fatalf("%v, or other bytes", err)
	}
}

// TestRefusedSplice: an error of the kernel or a sandbox about splice itself is
// returned unchanged, and the pipe is as it was.
func TestRefusedSplice(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EINTR, syscall.ENOSYS, syscall.EPERM, syscall.EINVAL} {
		t.Run(errno.Error(), func(t *testing.T) {
			if !privilege.Refused(t, errno, sys.SYS_SPLICE) {
				return
			}
			p := open(t, 0)
			far, _, fd := tcp(t)
			send(t, far, fd, []byte("hello"))
			if n, err := p.Fill(fd, 5); n != 0 || err != errno || p.Len() != 0 {
				t.Fatalf("fill: %d, %v, holds %d; want 0, %v, 0", n, err, p.Len(), errno)
			}
			pipe.Load(p, []byte("hello world"))
			if n, err := p.Drain(fd, 5); n != 0 || err != errno || p.Len() != 11 {
				t.Fatalf("drain: %d, %v, holds %d; want 0, %v, 11", n, err, p.Len(), errno)
			}
			wantResidue(t, p, []byte("hello world"))
		})
	}
}

func TestClose(t *testing.T) {
	p := open(t, 0)
	fill(t, p, 100)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("second Close: %v, want os.ErrClosed", err)
	}
	_, _, fd := tcp(t)
	n, err := p.Fill(fd, 1)
	wantErr(t, n, err, syscall.EBADF)
}

func TestNoAllocations(t *testing.T) {
	p := open(t, 0)
	far, _, src := tcp(t)
	_, _, dst := tcp(t)
	b := []byte("hello")
	allocs := testing.AllocsPerRun(100, func() {
		far.Write(b)
		for n := 0; n < len(b); n, _ = sys.FIONREAD(src) {
		}
		if n, err := p.Fill(src, 5); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := p.Fill(src, 5); err != pipe.ErrNotEmpty {
			t.Fatal(err)
		}
		if n, err := p.Drain(dst, 5); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := p.Fill(src, 5); err != syscall.EAGAIN {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Fatalf("%v allocations per round, want none", allocs)
	}
}

// TestZeroPipe: a Pipe that Open has not made owns no descriptor, least of all 0.
func TestZeroPipe(t *testing.T) {
	if err := new(pipe.Pipe).Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed a pipe that was never opened: %v", err)
	}
}
