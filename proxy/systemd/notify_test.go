package systemd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/systemd"
)

// manager is a datagram socket that plays systemd's.
func manager(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

// hear returns the next datagram.
func hear(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	buf := make([]byte, 4096)
	must(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	n, err := conn.Read(buf)
	must(t, err)
	return string(buf[:n])
}

func notifier(t *testing.T) *systemd.Notifier {
	t.Helper()
	n, err := systemd.NewNotifier()
	must(t, err)
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if _, ok := os.LookupEnv(name); ok {
			t.Errorf("%s is still set", name)
		}
	}
	return n
}

func TestNotify(t *testing.T) {
	paths := []string{filepath.Join(t.TempDir(), "notify"), "@penstock-test-" + strconv.Itoa(os.Getpid())}
	for _, path := range paths {
		conn := manager(t, path)
		n := notifier(t)
		for _, c := range []struct {
			tell func() error
			want string
		}{
			{func() error { return n.Ready("") }, `^READY=1\n$`},
			{func() error { return n.Ready("serving 3 listeners") }, `^READY=1\nSTATUS=serving 3 listeners\n$`},
			{n.Reloading, `^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*\n$`},
			{func() error { return n.Stopping(0) }, `^STOPPING=1\n$`},
			{func() error { return n.Stopping(90 * time.Second) }, `^STOPPING=1\nEXTEND_TIMEOUT_USEC=90000000\n$`},
			{func() error { return n.Status("bad\nREADY=1\x00") }, `^STATUS=bad READY=1\\x00\n$`},
		} {
			must(t, c.tell())
			if got := hear(t, conn); !regexp.MustCompile(c.want).MatchString(got) {
				t.Errorf("received %q, want %s", got, c.want)
			}
		}
	}
}

// TestReloadingIsNow: the time is from CLOCK_MONOTONIC, the clock that systemd compares with.
func TestReloadingIsNow(t *testing.T) {
	conn := manager(t, filepath.Join(t.TempDir(), "notify"))
	n := notifier(t)
	usec := func() int {
		must(t, n.Reloading())
		_, value, _ := strings.Cut(hear(t, conn), "MONOTONIC_USEC=")
		us, err := strconv.Atoi(strings.TrimSpace(value))
		must(t, err)
		return us
	}
	began := time.Now()
	first := usec()
	between := time.Now()
	usec() // the call takes a few microseconds
	least := int(time.Since(between).Microseconds())
	second := usec()
	most := int(time.Since(began).Microseconds())
	if apart := second - first; apart < least-1 || apart > most+1 { // each time is rounded
		t.Errorf("%d µs apart by the message, from %d to %d by the clock", apart, least, most)
	}
	if today := int(began.UnixMicro()); first > today/2 {
		t.Errorf("%d µs are not since the boot: the time of day is %d", first, today)
	}
}

func TestNobodyIsTold(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := notifier(t)
	var none *systemd.Notifier
	for _, n := range []*systemd.Notifier{n, none, {}} {
		must(t, n.Ready("x"), n.Reloading(), n.Stopping(time.Second), n.Status("x"))
		n.Watchdog(context.Background(), nil, nil) // returns at once
		if n.Enabled() || n.WatchdogInterval() != 0 {
			t.Error("the notifier is enabled")
		}
	}
}

func TestNotifySocketThatCannotBe(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "vsock:2:1234")
	if n, err := systemd.NewNotifier(); err == nil || !strings.Contains(err.Error(), "vsock:2:1234") || n.Ready("") != nil {
		t.Errorf("got %v", err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	n := notifier(t)
	if err := n.Ready(""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want the missing socket", err)
	}
}

func TestWatchdog(t *testing.T) {
	conn := manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	n := notifier(t)
	if n.WatchdogInterval() != 20*time.Millisecond {
		t.Errorf("interval %v", n.WatchdogInterval())
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	dead := errors.New("a loop does not answer")
	verdicts := make(chan error)
	failed := make(chan error, 1)
	go func() {
		defer close(ended)
		n.Watchdog(ctx, func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("no deadline")
			}
			return <-verdicts
		}, func(err error) { failed <- err })
	}()
	for range 3 {
		verdicts <- nil
		if got := hear(t, conn); got != "WATCHDOG=1\n" {
			t.Errorf("received %q", got)
		}
	}
	verdicts <- dead // no keep-alive is sent
	if err := <-failed; !errors.Is(err, dead) {
		t.Errorf("got %v", err)
	}
	must(t, n.Status("end"))
	if got := hear(t, conn); got != "STATUS=end\n" {
		t.Errorf("received %q, want no keep-alive", got)
	}
	cancel()
	close(verdicts)
	<-ended
}

func TestWatchdogOfAnotherProcess(t *testing.T) {
	manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "1")
	if n := notifier(t); n.WatchdogInterval() != 0 {
		t.Errorf("interval %v", n.WatchdogInterval())
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	if n, err := systemd.NewNotifier(); err == nil || n == nil {
		t.Error("an invalid interval is accepted")
	}
}
