package sockets

import (
	"os"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
)

// SendPages sends b over c by sendfile(2) from memory: where the kernel copies nothing, the socket's queue at the other end holds the pages.
// change changes them.
func SendPages(t testing.TB, c syscall.Conn, b []byte) (change func(to []byte)) {
	t.Helper()
	f := os.NewFile(uintptr(must.Get(sys.MemfdCreate("pages", sys.MFD_CLOEXEC))(t)), "pages")
	t.Cleanup(func() { f.Close() })
	must.Get(f.Write(b))(t)
	if n, err := sys.Sendfile(FD(t, c), int(f.Fd()), new(int64), len(b)); n != len(b) || err != nil {
		t.Fatalf("%d of %d bytes were sent: %v", n, len(b), err)
	}
	return func(to []byte) {
		t.Helper()
		must.Get(f.WriteAt(to, 0))(t)
	}
}
