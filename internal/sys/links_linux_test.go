package sys_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestLinks: a link of another user, wherever it is in the path, leads only to this user's own files.
func TestLinks(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	const nobody, other = 65534, 65533
	dir := sockets.Dir(t)
	for _, name := range []string{"ours", "theirs"} {
		must.Do(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		l, err := net.Listen("unix", filepath.Join(dir, name, "s"))
		must.Do(t, err)
		t.Cleanup(func() { l.Close() })
	}
	must.Do(t, os.Symlink(".", filepath.Join(dir, "link")))
	must.Do(t, os.Chown(filepath.Join(dir, "theirs"), nobody, nobody))
	must.Do(t, os.Chown(filepath.Join(dir, "theirs/s"), nobody, nobody))
	for _, c := range []struct {
		link, to, path string
		owner          int
		want           error
	}{
		{"", "", "ours/s", 0, nil},
		{"", "", "theirs/s", 0, nil},
		{"", "", "ours/none", 0, syscall.ENOENT},
		{"", "", "ours/s/s", 0, syscall.ENOTDIR},
		{"ours/root", "s", "ours/root", 0, nil},
		{"ours/up", "../theirs", "ours/up/../theirs//s", 0, nil},
		{"theirs/own", "s", "theirs/own", nobody, nil},
		{"theirs/self", dir + "/theirs", "theirs/self/own", nobody, nil},
		{"theirs/steal", "../ours/s", "theirs/steal", nobody, sys.ErrLink},
		{"theirs/absolute", dir + "/ours/s", "theirs/absolute", nobody, sys.ErrLink},
		{"theirs/directory", "../ours", "theirs/directory/s", nobody, sys.ErrLink},
		{"theirs/twice", "steal", "theirs/twice", 0, sys.ErrLink},
		{"theirs/process", "/proc/self/root" + dir + "/ours/s", "theirs/process", nobody, sys.ErrLink},
		{"theirs/third", "own", "theirs/third", other, sys.ErrLink},
		{"ours/process", "/proc/self/root" + dir + "/ours/s", "ours/process", 0, nil},
		{"ours/loop", "loop", "ours/loop", 0, syscall.ELOOP},
	} {
		if c.link != "" {
			must.Do(t, os.Symlink(c.to, filepath.Join(dir, c.link)))
			must.Do(t, os.Lchown(filepath.Join(dir, c.link), c.owner, c.owner))
		}
		for _, way := range []string{"/ours/../", "/link/"} {
			fd, err := sys.UnixStreamSocket()
			must.Do(t, err)
			if err := sys.ConnectUnix(fd, dir+way+c.path); !errors.Is(err, c.want) {
				t.Errorf("%s%s: %v, want %v", way, c.path, err, c.want)
			}
			must.Do(t, sys.Close(fd))
		}
	}
}

// TestAtFileStays: the name leads to the file that was found, whatever has its path by then.
func TestAtFileStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	must.Do(t, os.WriteFile(path, []byte("before"), 0o600))
	must.Do(t, sys.AtFile(path, func(name string) error {
		must.Do(t, os.Rename(path, path+".before"))
		must.Do(t, os.WriteFile(path, []byte("after"), 0o600))
		if text, err := os.ReadFile(name); err != nil || string(text) != "before" {
			t.Errorf("%q, %v", text, err)
		}
		return nil
	}))
}
