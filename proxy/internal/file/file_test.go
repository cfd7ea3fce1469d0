package file_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/penstock/penstock/proxy/internal/file"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, n := range []int{0, 1, 511, 512, 513, 100_000} {
		want := bytes.Repeat([]byte("x"), n)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := file.Read(path, n); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
		if _, err := file.Read(path, n-1); n > 0 && !errors.Is(err, file.ErrTooLarge) {
			t.Errorf("%d bytes where one less may be: %v", n, err)
		}
	}
	if got, err := file.Read("/proc/self/status", 1<<20); err != nil || len(got) == 0 { // of size 0
		t.Errorf("a file of the kernel's: %d bytes, %v", len(got), err)
	}
	if _, err := file.Read(path+"x", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestReadWaitsForNobody: neither for a pipe's writer nor for messages of the kernel.
func TestReadWaitsForNobody(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{pipe: file.ErrIrregular, dir: file.ErrIrregular, "/dev/zero": file.ErrIrregular} {
		if _, err := file.Read(path, 1<<20); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	_, err := file.Read("/proc/kmsg", 64<<20)
	if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("/proc/kmsg: %v", err)
	}
}

// TestGlob: no wildcard matches the dot of a hidden file.
func TestGlob(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	for _, name := range []string{"a.yaml", ".#a.yaml", "._a.yaml"} {
		if err := os.Symlink("nowhere", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string][]string{"*.yaml": {"a.yaml"}, "?#a.yaml": nil, ".*.yaml": {".#a.yaml", "._a.yaml"}, `\.#a.yaml`: {".#a.yaml"}, "._a.yaml": {"._a.yaml"}} {
		paths, err := file.Glob(filepath.Join(dir, pattern))
		for i := range paths {
			paths[i] = filepath.Base(paths[i])
		}
		if err != nil || !slices.Equal(paths, want) {
			t.Errorf("%s: %q, %v, want %q", pattern, paths, err, want)
		}
	}
}
