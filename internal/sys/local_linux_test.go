package sys_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
)

// TestLocalPath: a path is local if each of its directories is, and each directory of the links on its way. In procfs there are links to anywhere.
func TestLocalPath(t *testing.T) {
	dir := t.TempDir()
	if !sys.LocalPath(dir) {
		t.Skip("the directory for temporary files is not local:", dir)
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	for name, to := range map[string]string{"absolute": dir + "/real", "relative": "real", "up": "real/../real", "proc": "/proc/self", "around": "around", "through": "proc/root" + dir} {
		must.Do(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	for path, want := range map[string]bool{
		"/real/s": true, "/none/s": true, "/real/../s": true, "/absolute/s": true, "/relative/s": true, "/up/s": true,
		"/proc/s": false, "/around/s": false, "/through/s": false, "/real//s": true,
	} {
		if got := sys.LocalPath(dir + path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	t.Chdir(dir)
	if !sys.LocalPath("relative/s") || sys.LocalPath("proc/s") {
		t.Error("relative paths")
	}
}
