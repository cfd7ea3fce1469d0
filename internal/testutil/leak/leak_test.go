package leak

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
)

func TestMain(m *testing.M) { Main(m) }

func TestDescriptorsLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("descriptors are listed on Linux only")
	}
	var f *os.File
	var out bytes.Buffer
	code := run(func() int {
		var err error
		if f, err = os.Create(t.TempDir() + "/left-open"); err != nil {
			t.Fatal(err)
		}
		return 0
	}, &out, 0)
	if code != 1 || !strings.Contains(out.String(), "left-open") {
		t.Errorf("code %d, output %q; want 1 and the file's name", code, out.String())
	}
	runtime.KeepAlive(f)
	f.Close()
}

// TestReusedNumber: a descriptor that has the number of one that was open before
// is not the same one.
func TestReusedNumber(t *testing.T) {
	before := Snapshot{3: "socket:[1]", 4: "/a"}
	now := Snapshot{3: "socket:[2]", 4: "/a", 7: "pipe:[5]"}
	got := strings.Join(now.Since(before), ", ")
	if want := "3 -> socket:[2], 7 -> pipe:[5]"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
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

func TestNothingLeft(t *testing.T) {
	var out bytes.Buffer
	code := run(func() int {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		return 0
	}, &out, condition.Patience)
	if code != 0 || out.Len() != 0 {
		t.Fatalf("code %d, output %q; want neither", code, out.String())
	}
}

func TestCodeOfTests(t *testing.T) {
	if code := run(func() int { return 3 }, os.Stderr, 0); code != 3 {
		t.Fatalf("code %d, want that of the tests, 3", code)
	}
}
