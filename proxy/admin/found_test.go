package admin_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/proxy/admin"
)

// listens is the variable that has a child call listen on its descriptor 3.
const listens = "PENSTOCK_TEST_LISTENS"

// TestFoundSockets: the server at a socket that was found, and not named, is one of root or of this user.
func TestFoundSockets(t *testing.T) {
	if os.Getenv(listens) != "" { // the child of listensAs
		if err := syscall.Listen(3, 8); err != nil {
			t.Fatal(err)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may listen as another user")
	}
	r := newRig(t, "")
	path := listensAs(t, 12345)
	for name, x := range map[string]struct {
		at      string
		as      admin.Credentials
		refused bool
	}{
		"root":      {r.Addr(), admin.Credentials{Known: true}, false},
		"another":   {"unix:" + path, admin.Credentials{Known: true}, true},
		"the owner": {"unix:" + path, admin.Credentials{Known: true, Owner: 12345}, false},
		"named":     {"unix:" + path, admin.Credentials{}, false},
	} {
		c, err := admin.NewClientAs(x.at, &x.as)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Status(t.Context()); (err != nil) != x.refused {
			t.Errorf("%s: %v", name, err)
		}
		if x.refused && (!errors.Is(err, admin.ErrStranger) || !strings.Contains(err.Error(), "uid=12345")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// listensAs returns the path of a socket at which another user answers with a status: the kernel keeps the user that
// has called listen.
func listensAs(t *testing.T, uid int) string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(err)
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	must(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	child := exec.Command(privilege.Self, "-test.run=^TestFoundSockets$")
	child.Env, child.ExtraFiles, child.Dir = append(os.Environ(), listens+"=1"), []*os.File{file}, "/"
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, Pdeathsig: syscall.SIGKILL}
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := net.FileListener(file)
	must(err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(admin.Header, "1")
		fmt.Fprint(w, `{"state": "serving", "pid": 1}`)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // http.ErrServerClosed
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return path
}
