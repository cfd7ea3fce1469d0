package relay_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// blockingPipe returns the ends of a pipe whose writing end blocks, as standard output often does.
func blockingPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	must.Do(t, syscall.Pipe2(fds[:], syscall.O_CLOEXEC))
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// TestCopyToFullPipe: a copy to a full pipe that blocks sleeps in the kernel. (*os.File).ReadFrom would spin in it.
func TestCopyToFullPipe(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for source, connect := range map[string]network{"tcp": tcp, "unix": unixStream} {
		for way, copied := range map[string]func(dst *os.File, src net.Conn) (int64, error){
			"Copy":              func(dst *os.File, src net.Conn) (int64, error) { return r.Copy(dst, src) },
			"io.Copy from Wrap": func(dst *os.File, src net.Conn) (int64, error) { return io.Copy(dst, relay.Wrap(src)) },
			"of a bufio.Reader": func(dst *os.File, src net.Conn) (int64, error) { return r.Copy(dst, bufio.NewReader(src)) },
			"by a bufio.Writer": func(dst *os.File, src net.Conn) (int64, error) {
				w := bufio.NewWriter(dst)
				n, err := r.Copy(w, src)
				if err == nil {
					err = w.Flush()
				}
				return n, err
			},
		} {
			t.Run(source+"/"+way, func(t *testing.T) {
				t.Parallel()
				far, near := connect(t)
				out, in := blockingPipe(t)
				body := content(3, 1<<20)
				go func() {
					_, _ = far.Write(body)
					_ = far.CloseWrite()
				}()
				thread := make(chan int, 1)
				done := make(chan error, 1)
				go func() {
					runtime.LockOSThread()
					thread <- syscall.Gettid()
					n, err := copied(in, near)
					if err == nil && n != int64(len(body)) {
						err = fmt.Errorf("%d bytes", n)
					}
					in.Close()
					done <- err
				}()
				sleeps(t, <-thread)
				got, err := io.ReadAll(out)
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				must.Do(t, <-done)
			})
		}
	}
}

// TestCopyToBrokenPipe: the error of a file that is written by its own Write names the operation once.
func TestCopyToBrokenPipe(t *testing.T) {
	t.Parallel()

	far, near := tcp(t)
	out, in := blockingPipe(t)
	out.Close()
	write(t, far, "x")
	if _, err := newRelay(t, nil).Copy(in, near); !errors.Is(err, syscall.EPIPE) || err.Error() != "write w: broken pipe" {
		t.Error(err)
	}
}

// TestCopyNamesItsSource: the error of a file that has no descriptor to move is the file's, whatever it is copied to.
func TestCopyNamesItsSource(t *testing.T) {
	t.Parallel()

	dir := must.Get(os.Open(t.TempDir()))(t)
	defer dir.Close()
	closed := must.Get(os.Open("/dev/null"))(t)
	must.Do(t, closed.Close())
	pipe, in := blockingPipe(t)
	in.Close()
	must.Do(t, pipe.Close())
	r := newRelay(t, nil)
	_, blocking := blockingPipe(t)
	for _, src := range []*os.File{dir, closed, pipe} {
		_, socket := tcp(t)
		_, local := unixStream(t)
		out, in, err := os.Pipe()
		must.Do(t, err)
		defer out.Close()
		defer in.Close()
		file := must.Get(os.Create(filepath.Join(t.TempDir(), "to")))(t)
		defer file.Close()
		for _, dst := range []io.Writer{socket, local, in, file, blocking, new(bytes.Buffer)} {
			f, err := r.Move(dst, src)
			if e, is := err.(*os.PathError); !is || e.Op != "read" || e.Path != src.Name() {
				t.Errorf("%s to a %T: a %T: %v", src.Name(), dst, err, err)
			}
			if f.Fallbacks[relay.FallbackWrapped] != 1 {
				t.Errorf("%s to a %T: fallbacks %v", src.Name(), dst, f.Fallbacks)
			}
		}
	}
}

// sleeps waits until a thread of this process has slept at all of several looks, without a moment of CPU between them.
func sleeps(t *testing.T, tid int) {
	t.Helper()
	path := fmt.Sprintf("/proc/self/task/%d/", tid)
	inWrite := []byte(fmt.Sprintf("%d ", syscall.SYS_WRITE))
	var last []byte
	for deadline, same := time.Now().Add(condition.Patience), 0; same < 20; {
		if time.Now().After(deadline) {
			t.Fatal("the thread does not sleep in write")
		}
		now, err := os.ReadFile(path + "syscall")
		if err != nil {
			t.Skip("the kernel does not say in which call a thread is:", err)
		}
		ran, err := os.ReadFile(path + "schedstat")
		if err != nil {
			t.Skip("the kernel does not say how long a thread ran:", err)
		}
		if now = append(now, ran...); bytes.HasPrefix(now, inWrite) && bytes.Equal(now, last) {
			same++
		} else {
			same = 0
		}
		last = now
		time.Sleep(time.Millisecond)
	}
}

func init() {
	helpers["splicer"] = helperSplicer
	helpers["collector"] = helperCollector
}

// helperSplicer splices its standard input to a blocking socket that nobody reads.
// While it waits for that it holds the lock of the pipe.
func helperSplicer() {
	time.AfterFunc(condition.Patience, func() { os.Exit(1) }) // lest it locks for ever
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	succeed(err)
	for {
		if n, err := syscall.Splice(0, nil, fds[0], nil, 1<<20, 0); n == 0 || err != nil && err != syscall.EAGAIN {
			return
		}
	}
}

// helperCollector copies into the pipe of a splicer and stops the world again and
// again, for longer than it takes the socket to be full.
func helperCollector() {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "RELAY_TEST_HELPER=splicer")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	succeed(err)
	succeed(cmd.Start())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	succeed(err)
	far, err := net.Dial("tcp", l.Addr().String())
	succeed(err)
	near, err := l.Accept()
	succeed(err)
	go func() {
		for b := make([]byte, 64<<10); ; {
			if _, err := far.Write(b); err != nil {
				return
			}
		}
	}()
	r, err := relay.New(&relay.Config{Engine: relay.EngineSplice})
	succeed(err)
	go func() { _, _ = r.Copy(in, near) }()
	for range 100 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("collected")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = cmd.Process.Kill()
}

// TestFIFOThatIsLocked: a splice to a FIFO may wait for its lock, O_NONBLOCK or
// not. A stop-the-world must go on meanwhile. In a process of its own, since one
// that hangs could not say so.
func TestFIFOThatIsLocked(t *testing.T) {
	t.Parallel()

	h := startHelper(t, "collector")
	said := make(chan string, 1)
	go func() {
		s, _ := h.out.ReadString('\n')
		said <- s
	}()
	select {
	case s := <-said:
		if s != "collected\n" {
			t.Errorf("the helper says %q", s)
		}
	case <-time.After(condition.Patience):
		t.Error("a copy to a FIFO keeps the world from stopping")
		_ = h.cmd.Process.Kill()
	}
}

// beneath hides a connection but for its being there.
type beneath struct{ net.Conn }

func (b beneath) NetConn() net.Conn { return b.Conn }

func (b beneath) CloseWrite() error { return b.Conn.(*net.TCPConn).CloseWrite() }

// say writes a text.
func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	write(t, c, text)
}

// TestCopyAfterCloseWrite: the ordinary proxy of two copies, each followed by CloseWrite. A side
// that its owner has ended gets to TCP_CLOSE by the other's end of file, which is no reset.
func TestCopyAfterCloseWrite(t *testing.T) {
	t.Parallel()

	for _, engine := range []relay.Engine{relay.EngineAuto, relay.EngineSplice, relay.EngineCopy} {
		for name, wrap := range map[string]func(net.Conn) io.Reader{
			"plain":   func(c net.Conn) io.Reader { return c },
			"wrapped": func(c net.Conn) io.Reader { return beneath{c} },
			"limited": func(c net.Conn) io.Reader { return io.LimitReader(c, 1<<40) },
		} {
			t.Run(engine.String()+"/"+name, func(t *testing.T) {
				r := newRelay(t, &relay.Config{Engine: engine})
				for range 20 {
					client, a := sockets.TCPPair(t)
					b, server := sockets.TCPPair(t)
					errs := make(chan error, 2)
					oneWay := func(dst, src *net.TCPConn) {
						_, err := r.Copy(dst, wrap(src))
						errs <- errors.Join(err, dst.CloseWrite())
					}
					go oneWay(b, a)
					go oneWay(a, b)
					say(t, client, "question")
					client.CloseWrite()
					sockets.ExpectAll(t, server, "question")
					say(t, server, "answer")
					server.Close()
					sockets.ExpectAll(t, client, "answer")
					client.Close()
					for range 2 {
						must.Do(t, <-errs)
					}
				}
			})
		}
	}
}

// TestJoinAfterCloseWrite: the same of a session one of whose sides had been ended before.
func TestJoinAfterCloseWrite(t *testing.T) {
	t.Parallel()

	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"plain":   func(c net.Conn) net.Conn { return c },
		"wrapped": func(c net.Conn) net.Conn { return beneath{c} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelay(t, &relay.Config{})
			for range 20 {
				client, a := sockets.TCPPair(t)
				b, server := sockets.TCPPair(t)
				b.CloseWrite() // the whole question has been sent
				ended := make(chan error, 1)
				go func() {
					res, err := r.Join(t.Context(), wrap(a), wrap(b))
					if res.Reason != relay.ReasonEOF {
						err = errors.Join(err, errors.New(res.Reason.String()))
					}
					ended <- err
				}()
				sockets.ExpectAll(t, server, "")
				say(t, server, "answer")
				server.Close()
				sockets.ExpectAll(t, client, "answer")
				client.Close()
				must.Do(t, <-ended)
			}
		})
	}
}
