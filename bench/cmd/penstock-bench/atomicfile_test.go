package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// content returns a file's content, and checks that the file is alone in its directory.
func content(t *testing.T, path string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAFileIsReplacedWhenAllIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("the old content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, write := range []bool{false, true} {
		r, err := newAtomicFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := "the old content"
		if write {
			if _, err := io.WriteString(r, "new"); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); string(got) != want || err != nil {
				t.Errorf("before the end: %q, %v", got, err)
			}
			want = "new"
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if got := content(t, path); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestAFileThatNobodyWritesIsNotMade(t *testing.T) {
	dir := t.TempDir()
	r, err := newAtomicFile(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestALinkStaysALink(t *testing.T) {
	path, link := filepath.Join(t.TempDir(), "f"), filepath.Join(t.TempDir(), "link")
	for _, err := range []error{os.WriteFile(path, []byte("old"), 0o644), os.Symlink(path, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := newAtomicFile(link)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(r, "new"); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got := content(t, path); got != "new" {
		t.Errorf("%q", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestADeviceIsWrittenInPlace(t *testing.T) {
	r, err := newAtomicFile("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(r, "x"); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}
