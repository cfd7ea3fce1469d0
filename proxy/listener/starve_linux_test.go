package listener_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/socket"
)

// descriptors is what the child may have.
const descriptors = 32

// starve is the child of TestOutOfDescriptors: it accepts under a low limit of
// descriptors, tells on standard output, and ends with its standard input.
func starve() {
	must := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: descriptors, Max: descriptors}))
	l, err := listener.Listen(context.Background(), socket.Address{Network: "tcp", Name: "127.0.0.1:0"}, &listener.Config{
		OnPause: func(cause error) { fmt.Println("paused", cause) },
	})
	must(err)
	calls, begin := 0, time.Now()
	l.WrapAccept(func(accept func() (net.Conn, error)) (net.Conn, error) {
		calls++
		return accept()
	})
	fmt.Println("listening", l.Addr())
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	handled := make(chan struct{}, 1000)
	must(l.Serve(ctx, func(conn net.Conn, release func()) {
		defer release()
		conn.Write([]byte("x"))
		io.Copy(io.Discard, conn)
		conn.Close()
		handled <- struct{}{}
	}))
	fmt.Println("end", len(handled), l.Pauses(), calls, time.Since(begin).Milliseconds())
}

func TestOutOfDescriptors(t *testing.T) { testOutOfDescriptors(t, false) }

// The queue is longer than there are descriptors when accepting is stopped.
func TestOutOfDescriptorsAtTheStop(t *testing.T) { testOutOfDescriptors(t, true) }

func testOutOfDescriptors(t *testing.T, stopped bool) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"=starve")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	lines := bufio.NewScanner(stdout)
	next := func() string {
		if !lines.Scan() {
			t.Fatal("the child has ended: ", lines.Err())
		}
		return lines.Text()
	}
	addr, ok := strings.CutPrefix(next(), "listening ")
	if !ok {
		t.Fatal(lines.Text())
	}

	// More connections than the child has descriptors: the kernel queues the rest.
	const clients = 2 * descriptors
	var conns []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	if got := next(); !strings.HasPrefix(got, "paused ") || !strings.Contains(got, syscall.EMFILE.Error()) {
		t.Fatal(got)
	}
	if stopped {
		stdin.Close()
	}
	// Each gets its byte in turn, as those before it make room.
	for i, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conn.Close()
	}
	stdin.Close()
	told := 1
	for {
		var handled, pauses, calls, ms int
		switch got := next(); {
		case strings.HasPrefix(got, "paused "):
			told++
		default:
			if n, err := fmt.Sscanf(got, "end %d %d %d %d", &handled, &pauses, &calls, &ms); n != 4 {
				t.Fatal(got, err)
			}
			if handled != clients || pauses != told {
				t.Errorf("%d connections were handled in %d pauses, want %d and the %d told", handled, pauses, clients, told)
			}
			// One call for each connection, one that failed for each end of a
			// connection and for each tick of the clock, and the last.
			if most := 2*clients + ms/100 + 2; calls > most {
				t.Errorf("%d calls of accept in %d ms, want at most %d", calls, ms, most)
			}
			return
		}
	}
}
