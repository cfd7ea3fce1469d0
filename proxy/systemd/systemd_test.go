package systemd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/hung"
	"github.com/penstock/penstock/internal/testutil/leak"
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
	must(t, conn.SetReadDeadline(time.Now().Add(condition.Patience)))
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

// TestNotifySocketOfAHungFileSystem: a notification is given up, and the next ones fail at once.
func TestNotifySocketOfAHungFileSystem(t *testing.T) {
	dir := hung.Dir(t)
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	n := notifier(t)
	release := hung.Mount(t, dir)
	told := make(chan error)
	go func() { told <- n.Ready("") }()
	select {
	case err := <-told:
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(n.Status("x"), os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(condition.Patience):
		t.Error("it waits")
		release()
		<-told
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

// A report has the child's findings.
type report struct {
	Names, Unused, Taken     []string
	Missing, Datagram, Bound string
	NoSocket                 bool
	Environment              []string // systemd's variables, afterwards
	Inherited                string   // the number of sockets that a child of the child has
}

// service is the child: it reports, then greets on all sockets named "web" until its standard
// input ends.
func service() {
	r := report{}
	sockets := systemd.Receive()
	r.Names = sockets.Names()
	web, err := sockets.Take("web")
	if err == nil {
		web, err = again(sockets, web)
	}
	for _, l := range web {
		r.Taken = append(r.Taken, l.Addr().String())
		go greet(l)
	}
	_, missing := sockets.Take("nobody")
	r.Missing, r.NoSocket = text(missing), errors.Is(missing, systemd.ErrNoSocket)
	_, datagram := sockets.Take("log")
	r.Datagram = text(errors.Join(err, datagram))
	_, bound := sockets.Take("bound")
	r.Bound = text(bound)
	r.Unused = sockets.Unused()
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "LISTEN_") {
			r.Environment = append(r.Environment, v)
		}
	}
	out, _ := exec.Command("sh", "-c", "ls -l /proc/self/fd | grep -c socket: || true").CombinedOutput()
	r.Inherited = strings.TrimSpace(string(out))
	_ = json.NewEncoder(os.Stdout).Encode(r)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = sockets.Close()
}

// again closes listeners and takes them once more, as a reload may.
func again(sockets *systemd.Sockets, web []net.Listener) ([]net.Listener, error) {
	for _, l := range web {
		l.Close()
	}
	return sockets.Take("web")
}

func greet(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "hello\n")
		c.Close()
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// activated starts the child as systemd would: with descriptors from 3 on, and with LISTEN_PID
// set to its own process id.
func activated(t *testing.T, files []*os.File, fdnames, pid string) (r report) {
	t.Helper()
	script := `LISTEN_PID=` + pid + ` exec "$0"`
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command("sh", "-c", script, exe)
	cmd.Env = append(os.Environ(), asService+"=1", "LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES="+fdnames)
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must(t, err, json.Unmarshal(line, &r))
	return r
}

// passed returns two listeners named web, a third of another name, a socket for datagrams, and one for streams that does
// not listen.
func passed(t *testing.T) (files []*os.File, addresses []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	for _, l := range []struct{ network, address string }{{"tcp", "127.0.0.1:0"}, {"unix", path}, {"tcp", "127.0.0.1:0"}} {
		listener, err := net.Listen(l.network, l.address)
		must(t, err)
		if u, ok := listener.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		addresses = append(addresses, listener.Addr().String())
		f, err := listener.(interface{ File() (*os.File, error) }).File()
		must(t, err, listener.Close())
		files = append(files, f)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	f, err := packets.(*net.UDPConn).File()
	must(t, err, packets.Close())
	files = append(files, f)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	files = append(files, os.NewFile(uintptr(fd), "bound"))
	t.Cleanup(func() {
		for _, f := range files {
			f.Close()
		}
	})
	return files, addresses
}

func TestSocketActivation(t *testing.T) {
	files, addresses := passed(t)
	r := activated(t, files, "web:web:admin:log:bound", "$$")
	want := report{
		Names: []string{"admin", "bound", "log", "web"}, Unused: []string{"admin", "bound", "log"}, Taken: addresses[:2],
		Inherited: "0", NoSocket: true,
	}
	if !slices.Equal(r.Names, want.Names) || !slices.Equal(r.Unused, want.Unused) || !slices.Equal(r.Taken, want.Taken) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	if !r.NoSocket || !strings.Contains(r.Missing, "systemd:nobody: ") || !strings.HasSuffix(r.Missing, "write one of admin, bound, log, web, or set FileDescriptorName= in the socket unit") {
		t.Errorf("a name that was not passed: %q", r.Missing)
	}
	if !strings.Contains(r.Datagram, "systemd:log: descriptor 6 is not a listening stream socket") {
		t.Errorf("a socket for datagrams: %q", r.Datagram)
	}
	if !strings.Contains(r.Bound, "systemd:bound: descriptor 7 is not a listening stream socket") {
		t.Errorf("a socket that does not listen: %q", r.Bound)
	}
	if r.Environment != nil || r.Inherited != "0" {
		t.Errorf("children get %v and %s sockets", r.Environment, r.Inherited)
	}
	for i, network := range []string{"tcp", "unix"} {
		c, err := net.Dial(network, addresses[i])
		must(t, err)
		got, err := io.ReadAll(c)
		if string(got) != "hello\n" || err != nil {
			t.Errorf("%s: %q, %v", network, got, err)
		}
		c.Close()
	}
}

func TestSocketsOfAnotherProcess(t *testing.T) {
	files, _ := passed(t)
	r := activated(t, files, "web:web:admin:log", "1")
	if r.Names != nil || r.Taken != nil || r.Environment != nil || !strings.Contains(r.Missing, "systemd passed none") {
		t.Errorf("got %+v", r)
	}
}

func TestSocketsWithoutNames(t *testing.T) {
	files, _ := passed(t)
	r := activated(t, files[:2], "", "$$")
	if want := []string{"LISTEN_FD_3", "LISTEN_FD_4"}; !slices.Equal(r.Names, want) {
		t.Errorf("names %v, want %v", r.Names, want)
	}
}

// asService is set in the environment of a child that plays a service.
const asService = "PENSTOCK_TEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asService) != "" {
		service()
		return
	}
	leak.Main(m)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
