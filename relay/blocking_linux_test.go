package relay_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// blockingPipe returns the ends of a pipe whose writing end blocks, as standard output often does.
func blockingPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
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
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// sleeps waits until a thread of this process has slept at all of several looks, without a moment of CPU between them.
func sleeps(t *testing.T, tid int) {
	t.Helper()
	path := fmt.Sprintf("/proc/self/task/%d/", tid)
	inWrite := []byte(fmt.Sprintf("%d ", syscall.SYS_WRITE))
	var last []byte
	for deadline, same := time.Now().Add(patience), 0; same < 20; {
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
