package leak

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

func TestMain(m *testing.M) { Main(m) }

func TestDescriptorsLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("descriptors are listed on Linux only")
	}
	var f *os.File
	var out bytes.Buffer
	code := run(func() int {
		f = must.Get(os.Create(t.TempDir() + "/left-open"))(t)
		return 0
	}, &out, 0)
	if code != 1 || !strings.Contains(out.String(), "left-open") {
		t.Errorf("code %d, output %q; want 1 and the file's name", code, out.String())
	}
	runtime.KeepAlive(f)
	f.Close()
}

func TestGoroutinesLeft(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	var out bytes.Buffer
	code := run(func() int {
		go func() { <-stop }()
		return 0
	}, &out, 0)
	if code != 1 || !strings.Contains(out.String(), "goroutines") {
		t.Fatalf("code %d, output %q; want 1 and a goroutine", code, out.String())
	}
}
