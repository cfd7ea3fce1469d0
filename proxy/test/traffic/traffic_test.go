package traffic

import (
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/software"
)

func TestMain(m *testing.M) { leak.Main(m) }

// binary is the program under test, forwarder the example of the README;
// TestTraffic builds both.
var binary, forwarder string

func TestTraffic(t *testing.T) {
	dir := software.Build(t, "github.com/penstock/penstock/proxy/cmd/penstock", "github.com/penstock/penstock/examples/forward")
	binary, forwarder = filepath.Join(dir, "penstock"), filepath.Join(dir, "forward")

	t.Run("nginx", testNginx)
	t.Run("example", testExample)
}
