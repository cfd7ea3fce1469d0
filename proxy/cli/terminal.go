//go:build linux

package cli

import (
	"io"
	"os"

	"github.com/penstock/penstock/internal/sys"
)

// EraseLine moves the cursor to the first column and erases the line (ECMA-48, EL), on every
// terminal but a dumb one.
const EraseLine = "\r\x1b[K"

// usualWidth is the width of a terminal that does not report its own.
const usualWidth = 80

// TerminalWidth returns the columns of the terminal that w is, and false if it
// is none or cannot move its cursor.
func TerminalWidth(w io.Writer, getenv func(string) string) (int, bool) {
	f, ok := w.(*os.File)
	if !ok || getenv("TERM") == "dumb" {
		return 0, false
	}
	width, err := sys.TerminalWidth(int(f.Fd()))
	if err != nil {
		return 0, false
	}
	if width == 0 {
		width = usualWidth
	}
	return width, true
}
