package sockopt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testutil/hung"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestPlaceOnAHungFileSystem: a file system that does not answer is given up, and the path stands for itself.
func TestPlaceOnAHungFileSystem(t *testing.T) {
	t.Parallel()
	dir := hung.Dir(t)
	path := filepath.Join(dir, "link")
	if err := os.Symlink("to", path); err != nil {
		t.Fatal(err)
	}
	hung.Mount(t, dir)
	for range 20 {
		if got := (sockopt.Address{Network: "unix", Name: path}).Place(); got != "unix:"+path {
			t.Error(got)
		}
	}
}
