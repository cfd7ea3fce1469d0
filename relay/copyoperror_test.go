package relay_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// TestCopyErrorIsOpError: the error of a connection is the type that io.Copy returns.
func TestCopyErrorIsOpError(t *testing.T) {
	t.Parallel()

	for name, copyAll := range map[string]func(io.Writer, io.Reader) (int64, error){"io": io.Copy, "relay": relay.Copy} {
		_, src := tcp(t)
		_, dst := tcp(t)
		_ = src.SetReadDeadline(time.Now().Add(-time.Second))
		_, err := copyAll(dst, src)
		if e, ok := err.(*net.OpError); !ok || e.Source == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %T: %v", name, err, err)
		}
	}
}
