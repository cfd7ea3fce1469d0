package sockets

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// Dir returns a directory for sockets that is removed when the test ends. Its path leaves room in sun_path,
// which has 108 bytes (unix(7)); the path of t.TempDir, which contains the test's name, may not.
func Dir(t testing.TB) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "s"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
