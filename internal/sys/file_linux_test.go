package sys_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/internal/sys"
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
