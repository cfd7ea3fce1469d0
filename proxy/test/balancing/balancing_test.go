package balancing

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
)

func TestMain(m *testing.M) { leak.Main(m) }

var built string

func TestBalancing(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: choices among endpoints are the same for every user; the run without -short has them")
	}
	built = program.Build(t)
	for name, test := range map[string]func(*testing.T){
		"failover":       testFailover,
		"redis":          testRedis,
		"mirrored":       testMirrored,
		"names":          testNames,
		"canary of gRPC": testCanaryOfGRPC,
		"headers":        testHeaders,
		"protocols":      testProtocols,
		"evasion":        testEvasion,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
