package relay_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

func init() {
	helpers["splicer"] = helperSplicer
	helpers["collector"] = helperCollector
}

// helperSplicer splices its standard input to a blocking socket that nobody reads.
// While it waits for that it holds the lock of the pipe.
func helperSplicer() {
	time.AfterFunc(patience/2, func() { os.Exit(1) }) // lest it locks for ever
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(err)
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
	must(err)
	must(cmd.Start())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	far, err := net.Dial("tcp", l.Addr().String())
	must(err)
	near, err := l.Accept()
	must(err)
	go func() {
		for b := make([]byte, 64<<10); ; {
			if _, err := far.Write(b); err != nil {
				return
			}
		}
	}()
	r, err := relay.New(&relay.Config{Engine: relay.EngineSplice})
	must(err)
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
	case <-time.After(patience):
		t.Error("a copy to a FIFO keeps the world from stopping")
		_ = h.cmd.Process.Kill()
	}
}
