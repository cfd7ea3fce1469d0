package sys_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"golang.org/x/sys/unix"
)

func TestTerminalWidthOfATerminal(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminal here: %v", err)
	}
	defer tty.Close()
	fd := int(tty.Fd())
	if width, err := sys.TerminalWidth(fd); err != nil || width != 0 {
		t.Errorf("a new terminal: got %d, %v, want 0", width, err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 73}); err != nil {
		t.Fatal(err)
	}
	if width, err := sys.TerminalWidth(fd); err != nil || width != 73 {
		t.Errorf("got %d, %v, want 73", width, err)
	}
}

func TestTerminalWidthOfAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := sys.TerminalWidth(int(w.Fd())); !errors.Is(err, syscall.ENOTTY) {
		t.Errorf("got %v, want ENOTTY", err)
	}
}

func TestNodeMask(t *testing.T) {
	var m sys.NodeMask
	for _, n := range []int{0, 31, 32, 63, 64, 1023} {
		m.Set(n)
	}
	if got := m.Nodes(); !slices.Equal(got, []int{0, 31, 32, 63, 64, 1023}) {
		t.Errorf("%v", got)
	}
	if m.Has(-1) || m.Has(1024) || m.Has(1) {
		t.Error("nodes that were not set")
	}
}

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
