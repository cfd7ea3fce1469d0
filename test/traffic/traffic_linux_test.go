package traffic

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// binary is the program under test, forwarder the example of the README;
// TestTraffic builds both.
var binary, forwarder string

func TestTraffic(t *testing.T) {
	dir := t.TempDir()
	args := []string{"build", "-buildvcs=false", "-o", dir + "/"}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/penstock", "./examples/forward")...)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	binary, forwarder = filepath.Join(dir, "penstock"), filepath.Join(dir, "forward")

	t.Run("iperf3", testIperf3)
	t.Run("nginx", testNginx)
	t.Run("nginx slow reader", testNginxSlowReader)
	t.Run("redis", testRedis)
	t.Run("redis on unix sockets", testRedisUnix)
	t.Run("postgres", testPostgres)
	t.Run("system calls", testSystemCalls)
	t.Run("example", testExample)
}
