package program

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// TestUnpinAnyDirectory: the links in a directory are found whatever the name of the directory.
func TestUnpinAnyDirectory(t *testing.T) {
	t.Parallel()

	dir := filepath.Join(t.TempDir(), "pins[1]")
	must.Do(t, os.Mkdir(dir, 0o700))
	p := &Program{pin: dir}
	must.Do(t, os.WriteFile(p.linkPath(1, "ingress"), nil, 0o600))
	must.Do(t, p.Unpin())
	if left := must.Get(os.ReadDir(dir))(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
