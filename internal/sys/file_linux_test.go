package sys_test

import (
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
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
	must.Do(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 73}))
	if width, err := sys.TerminalWidth(fd); err != nil || width != 73 {
		t.Errorf("got %d, %v, want 73", width, err)
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
	must.Do(t, err)
	t.Cleanup(func() {
		sys.Close(r)
		sys.Close(w)
	})
	return r, w
}

func TestMain(m *testing.M) { leak.Main(m) }
