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
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/pipe"
)

// open opens a pipe that lives as long as the test.
func open(t testing.TB, size int) *pipe.Pipe {
	t.Helper()
	p := must.Get(pipe.Open(size))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// tcp returns a connection and the descriptor of its second end.
func tcp(t testing.TB) (far, near *net.TCPConn, fd int) {
	t.Helper()
	far, near = sockets.TCPPair(t)
	return far, near, sockets.FD(t, near)
}

// arrived waits until n bytes are queued at fd.
func arrived(t testing.TB, fd, n int) {
	t.Helper()
	condition.Await(t, fmt.Sprintf("%d bytes queued", n), func() bool {
		got, err := sys.FIONREAD(fd)
		return err == nil && got >= n
	})
}

// send writes b and waits until it is queued at fd, which is empty.
func send(t testing.TB, far io.Writer, fd int, b []byte) {
	t.Helper()
	must.Get(far.Write(b))(t)
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
	must.Fail(pipe.Open(-1))(t, syscall.EINVAL)
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
			w := must.Get(os.Create(path))(t)
			t.Cleanup(func() { w.Close() })
			r := must.Get(os.Open(path))(t)
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
				must.Get(w.Write(in))(t)
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
	f := must.Get(os.CreateTemp(t.TempDir(), ""))(t)
	defer f.Close()
	must.Get(f.WriteString("0123456789"))(t)
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
	condition.Await(t, "end of file", func() bool {
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
	condition.Await(t, "reset", func() bool {
		n, err = p.Fill(fd, 100)
		return err != syscall.EAGAIN
	})
	wantErr(t, n, err, syscall.ECONNRESET)
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
	must.Do(t, p.Close())
	must.Is(t, p.Close(), os.ErrClosed)
	_, _, fd := tcp(t)
	n, err := p.Fill(fd, 1)
	wantErr(t, n, err, syscall.EBADF)
}

// TestZeroPipe: a Pipe that Open has not made owns no descriptor, least of all 0.
func TestZeroPipe(t *testing.T) {
	must.Is(t, new(pipe.Pipe).Close(), os.ErrClosed)
}

// TestTeeFull: a pipe takes as many copies as it has slots, whatever their size, and reports how many
// bytes those were.
func TestTeeFull(t *testing.T) {
	from, to := open(t, 0), open(t, 0)
	if _, err := from.Tee(to, 1); err != syscall.EAGAIN {
		t.Errorf("of an empty pipe: %v", err)
	}
	for range 10 {
		if n, err := to.Write(random(4096)); n != 4096 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n, err := from.Write(random(16 * 4096)); n != 16*4096 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := from.Tee(to, from.Len()); n != 6*4096 || err != nil || to.Len() != 16*4096 || from.Len() != 16*4096 {
		t.Errorf("tee: %d, %v; %d held", n, err, to.Len())
	}
	if n, err := from.Tee(to, from.Len()); n != 0 || err != syscall.EAGAIN {
		t.Errorf("into a full pipe: %d, %v", n, err)
	}
	if n, err := to.Write([]byte("x")); n != 0 || err != syscall.EAGAIN || to.Len() != 16*4096 {
		t.Errorf("write to a full pipe: %d, %v", n, err)
	}
	for _, max := range []int{0, -1} {
		if _, err := from.Tee(to, max); err != syscall.EINVAL {
			t.Errorf("%d: %v", max, err)
		}
	}
	for _, to := range []*pipe.Pipe{from, nil} {
		if _, err := from.Tee(to, 1); err != syscall.EINVAL {
			t.Errorf("into itself or nothing: %v", err)
		}
	}
}

// block makes the socket fd take nothing more, and returns how much it took.
func block(t testing.TB, fd int) int {
	t.Helper()
	total, b := 0, make([]byte, 64<<10)
	for {
		n, err := sys.Send(fd, b, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		total += n
		if err == nil {
			continue
		}
		if err != syscall.EAGAIN {
			t.Fatal(err)
		}
		// Bytes in flight may still be acknowledged and make room.
		unsent := -1
		condition.Await(t, "a send queue at rest", func() bool {
			was := unsent
			unsent, _ = sys.SIOCOUTQ(fd)
			return was == unsent
		})
		if n, err := sys.Send(fd, b[:1], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL); err == syscall.EAGAIN {
			return total
		} else {
			total += n
		}
	}
}

// TestSmallSegments sends 1,000 segments of 100 bytes to a destination that takes
// nothing. A pipe of 64 KiB has 16 slots. It refuses the 17th segment, holding
// 1,600 bytes, which proves nothing about the source. Once the destination reads,
// all arrive in order.
func TestSmallSegments(t *testing.T) {
	const segments, size = 1000, 100
	in := random(segments * size)
	p, far, src := fillSlots(t, in, size)
	reader, _, dst := tcp(t)
	dead := block(t, dst)
	sent := p.Len()
	for full := sent; sent < len(in); sent += size {
		must.Get(far.Write(in[sent : sent+size]))(t)
		if sent == full {
			arrived(t, src, size)
			n, err := p.Fill(src, p.Size())
			wantErr(t, n, err, pipe.ErrNotEmpty)
			n, err = p.Drain(dst, p.Len())
			wantErr(t, n, err, syscall.EAGAIN)
			if p.Len() != full {
				t.Fatalf("holds %d bytes, want %d", p.Len(), full)
			}
		}
	}

	got := make(chan []byte, 1)
	go func() {
		io.CopyN(io.Discard, reader, int64(dead))
		b := make([]byte, len(in))
		io.ReadFull(reader, b)
		got <- b
	}()
	move(t, p, src, dst, len(in)-p.Len())
	if !bytes.Equal(<-got, in) {
		t.Fatal("other bytes")
	}
}

// fillSlots returns a pipe of 64 KiB into which 16 segments were spliced one by
// one, and the connection that they came over. A segment that the sender happens
// to lay across two pages takes two slots; then it starts over.
func fillSlots(t *testing.T, in []byte, size int) (p *pipe.Pipe, far *net.TCPConn, src int) {
	t.Helper()
again:
	for range 10 {
		p = open(t, 0)
		far, _, src = tcp(t)
		_ = far.SetNoDelay(true)
		for i := range 16 {
			send(t, far, src, in[i*size:(i+1)*size])
			n, err := p.Fill(src, p.Size())
			if errors.Is(err, pipe.ErrNotEmpty) {
				continue again
			}
			if n != size || err != nil {
				t.Fatalf("fill of segment %d: %d, %v", i, n, err)
			}
		}
		return p, far, src
	}
	t.Fatal("16 segments never fitted into 16 slots")
	return nil, nil, 0
}

// move fills left bytes from src and drains all to dst.
func move(t *testing.T, p *pipe.Pipe, src, dst, left int) {
	t.Helper()
	condition.Await(t, "all moved", func() bool {
		if left > 0 {
			n, err := p.Fill(src, p.Size())
			if err != nil && err != syscall.EAGAIN && err != pipe.ErrNotEmpty {
				t.Fatal(err)
			}
			left -= n
		}
		if _, err := p.Drain(dst, p.Size()); err != nil && err != syscall.EAGAIN {
			t.Fatal(err)
		}
		return left == 0 && p.Len() == 0
	})
}

func TestLine(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name   string
		limits *pipe.Limits
		budget int
		want   int64
	}{
		{"default of an ordinary user", pipe.NewLimits(mib, 16384, 0, 20000, false), 0, 14336},
		{"named below the quota", pipe.NewLimits(mib, 16384, 0, 20000, false), 15000, 15000},
		{"named above the quota", pipe.NewLimits(mib, 16384, 0, 20000, false), 20000, 16384},
		{"hard quota below the soft one", pipe.NewLimits(mib, 16384, 800, 20000, false), 0, 700},
		{"hard quota alone", pipe.NewLimits(mib, 0, 800, 20000, false), 0, 700},
		{"exempt, by descriptors", pipe.NewLimits(mib, 16384, 800, 20000, true), 0, 2500 * 16},
		{"exempt, with a name", pipe.NewLimits(mib, 16384, 800, 20000, true), 50000, 50000},
		{"no quota", pipe.NewLimits(mib, 0, 0, 800, false), 0, 1600},
		{"descriptors without end", pipe.NewLimits(mib, 0, 0, 1<<30, false), 0, 1 << 18},
		{"none", pipe.NewLimits(mib, 16384, 0, 20000, false), -1, 0},
	} {
		if got := c.limits.Line(c.budget); got != c.want {
			t.Errorf("%s: %d pages, want %d", c.name, got, c.want)
		}
	}
}

func noFile(t *testing.T) int64 {
	t.Helper()
	var files syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	return int64(min(files.Cur, 1<<30))
}

func number(t *testing.T, name string) int {
	t.Helper()
	text := must.Get(os.ReadFile("/proc/sys/fs/pipe-" + name))(t)
	return must.Get(strconv.Atoi(strings.TrimSpace(string(text))))(t)
}

// TestNoResize: where a sandbox refuses to resize pipes, all have the default
// size.
func TestNoResize(t *testing.T) {
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_FCNTL) {
		return
	}
	if sizes := pipe.ReadLimits().Sizes(); len(sizes) != 1 || sizes[0] != 16*os.Getpagesize() {
		t.Fatalf("sizes %v, want the default alone", sizes)
	}
}
