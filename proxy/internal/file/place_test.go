package file_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/internal/file"
)

// appendTo appends a line to the file of a path as the session log does.
func appendTo(path string) error {
	fd, err := file.Append(path, 0o640)
	if err != nil {
		return err
	}
	_, err = sys.Write(fd, []byte("line\n"))
	return errors.Join(err, sys.Close(fd))
}

// nobody is the user that the tests of root have plant files.
const nobody = 65534

// TestPlantedLinks: in a directory of another user, or one in which every user may write, nothing is read or written through a link
// or from or to a file that the other user has put there, and nothing is made.
func TestPlantedLinks(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	for name, plant := range map[string]func(dir, victim, path string) error{
		"a directory of another user": func(dir, _, _ string) error { return os.Chown(dir, nobody, nobody) },
		"a link in it": func(dir, victim, path string) error {
			return errors.Join(os.Symlink(victim, path), os.Lchown(path, nobody, nobody), os.Chown(dir, nobody, nobody))
		},
		"a link in a sticky directory": func(dir, victim, path string) error {
			return errors.Join(os.Symlink(victim, path), os.Lchown(path, nobody, nobody), os.Chmod(dir, 0o777|os.ModeSticky))
		},
		"a link to what is not there": func(dir, victim, path string) error {
			return errors.Join(os.Symlink(victim+"x", path), os.Lchown(path, nobody, nobody), os.Chmod(dir, 0o777|os.ModeSticky))
		},
		"another name in a sticky directory": func(dir, victim, path string) error {
			return errors.Join(os.Link(victim, path), os.Chmod(dir, 0o777|os.ModeSticky))
		},
		"another name where a group may write": func(dir, victim, path string) error {
			return errors.Join(os.Link(victim, path), os.Chmod(dir, 0o775))
		},
		"a file in a sticky directory": func(dir, _, path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o666), os.Chown(path, nobody, nobody), os.Chmod(dir, 0o777|os.ModeSticky))
		},
		"a FIFO in a sticky directory": func(dir, _, path string) error {
			return errors.Join(syscall.Mkfifo(path, 0o666), os.Chown(path, nobody, nobody), os.Chmod(dir, 0o777|os.ModeSticky))
		},
		"a directory in which all may write": func(dir, _, _ string) error { return os.Chmod(dir, 0o777) },
		"a link on the way": func(dir, victim, _ string) error {
			aside := dir + ".aside"
			return errors.Join(os.Rename(dir, aside), os.Symlink(filepath.Dir(victim), dir), os.Lchown(dir, nobody, nobody))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			dir, victim := filepath.Join(top, "logs"), filepath.Join(top, "secret", "victim")
			path := filepath.Join(dir, "victim")
			if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(filepath.Dir(victim), 0o700), os.WriteFile(victim, []byte("mine"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := plant(dir, victim, path); err != nil {
				t.Fatal(err)
			}
			if text, err := file.ReadOwn(path, 1<<10); err == nil {
				t.Errorf("%q is read", text)
			}
			if strings.HasPrefix(name, "a FIFO") {
				if err := file.Write(path, []byte("other"), 0o600); !errors.Is(err, file.ErrUnsafe) {
					t.Errorf("written to the FIFO: %v", err)
				}
			}
			err := appendTo(path)
			if !errors.Is(err, file.ErrUnsafe) && !errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
			if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
				t.Errorf("the file has %q, %v", text, err)
			}
			if _, err := os.Lstat(victim + "x"); err == nil {
				t.Error("a file was made")
			}
		})
	}
}

// TestOwnPlaces: links of this user or of root, descriptors and devices are written to, and what is not there is made.
func TestOwnPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(path("d"), 0o700), os.Symlink("d/real", path("link")), os.Symlink(dir, path("d/up")), os.Symlink("/dev/null", path("null")),
		os.Symlink("loop", path("loop")), os.Mkdir(path("shared"), 0o700), os.Chmod(path("shared"), 0o777|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "new", "link", "d/up/link", "d/../d/./real", "null", "shared/new", "shared/new", "d//real"} {
		if err := appendTo(path(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text, err := os.ReadFile(path("d/real")); err != nil || strings.Count(string(text), "line") != 4 {
		t.Errorf("%q, %v", text, err)
	}
	for name, want := range map[string]error{"loop": syscall.ELOOP, "no/file": syscall.ENOENT, "new/file": syscall.ENOTDIR, "d": syscall.EISDIR} {
		if err := appendTo(path(name)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOwnStandardOutput$")
	cmd.Env, cmd.Stdout = append(os.Environ(), "PENSTOCK_TEST_STDOUT=1"), w
	err = cmd.Run()
	w.Close()
	text := make([]byte, 100)
	n, _ := r.Read(text)
	if err != nil || !strings.HasPrefix(string(text[:n]), "line\nline\n") {
		t.Errorf("%q, %v", text[:n], err)
	}
	if err := file.Write(path("link"), []byte("whole"), 0o644); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path("d/real")); err != nil || string(text) != "whole" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestOwnStandardOutput appends to standard output by its names, for TestOwnPlaces.
func TestOwnStandardOutput(t *testing.T) {
	if os.Getenv("PENSTOCK_TEST_STDOUT") == "" {
		t.Skip("it is a part of TestOwnPlaces")
	}
	for _, name := range []string{"/dev/stdout", "/proc/self/fd/1"} {
		if err := appendTo(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSwappedWhileWritten: another user swaps the directory for a link to a directory of root all the time. Nothing is
// written there.
func TestSwappedWhileWritten(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	top := t.TempDir()
	theirs, secret := filepath.Join(top, "theirs"), filepath.Join(top, "secret")
	if err := errors.Join(os.Chmod(top, 0o755), os.Mkdir(theirs, 0o755), os.Mkdir(secret, 0o755), os.Mkdir(filepath.Join(theirs, "logs"), 0o755),
		os.Symlink(secret, filepath.Join(theirs, "link")), os.Lchown(filepath.Join(theirs, "link"), nobody, nobody), os.Chown(theirs, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	parent := filepath.Dir(top)
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `trap 'exit 0' TERM; echo ready; while :; do mv -T logs kept; mv -T link logs; mv -T logs link; mv -T kept logs; done`)
	cmd.Dir = theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = out.Read(make([]byte, 5))
	unsafe, written := 0, 0
	end := time.Now().Add(condition.Patience)
	for n := 0; n < 20_000 || unsafe == 0 && time.Now().Before(end); n++ {
		switch err := appendTo(filepath.Join(theirs, "logs", "s.log")); {
		case err == nil:
			written++
		case errors.Is(err, file.ErrUnsafe):
			unsafe++
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if names, err := os.ReadDir(secret); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
	if unsafe == 0 {
		t.Error("the directory was never a link")
	}
	t.Logf("%d written, %d refused", written, unsafe)
}
