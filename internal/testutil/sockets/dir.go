package sockets

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// Dir returns a directory that is removed when the test ends, for sockets: its path leaves room in sun_path,
// of 108 bytes (unix(7)), which that of t.TempDir, with the test's name in it, may not.
func Dir(t testing.TB) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "s"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
