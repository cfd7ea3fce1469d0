package admin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/proxy/admin"
)

// asksAs is the environment variable of a child that makes a request as another user: the
// address and the request.
const asksAs = "PENSTOCK_TEST_ASKS"

// postedAs makes a request from a child of another user, which root may start.
func postedAs(t *testing.T, uid uint32, groups []uint32, addr, target string) (code int, body string) {
	t.Helper()
	cmd := exec.Command(privilege.Self, "-test.run=^TestFilesOfOthers$", "-test.v")
	cmd.Env = append(os.Environ(), asksAs+"="+addr+" "+target)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}, Pdeathsig: syscall.SIGKILL}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	_, answer, ok := strings.Cut(string(out), "answer ")
	if _, scan := fmt.Sscanf(answer, "%d %q", &code, &body); err != nil || !ok || scan != nil {
		t.Fatalf("%v, %v: %s", err, scan, out)
	}
	return code, body
}

// dialed returns a connection to a server's address.
func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// posted is the answer to a request on a connection.
func posted(t *testing.T, c net.Conn, target string) (code int, body string) {
	t.Helper()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	token := "Authorization: Bearer " + changeToken + "\r\n"
	if _, err := io.WriteString(c, "POST "+target+" HTTP/1.1\r\nHost: localhost\r\n"+admin.Header+": 1\r\n"+token+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// TestFilesOfOthers: the process reads files other than its own only for root and its own
// user, over its unix socket. To other clients it does not show the content of its own file.
func TestFilesOfOthers(t *testing.T) {
	if addr, target, ok := strings.Cut(os.Getenv(asksAs), " "); ok {
		code, body := posted(t, dialed(t, addr), target)
		fmt.Printf("answer %d %q\n", code, body)
		return
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		who, bind       string
		trusted, change bool
	}{
		{"self", "unix:" + dir + "/self", true, true},
		{"another", "unix:" + dir + "/another", false, false}, // of the group
		{"tcp", "127.0.0.1:0", false, true},
	} {
		t.Run(x.who, func(t *testing.T) {
			if x.who == "another" && os.Geteuid() != 0 {
				t.Skip("only root may have another user ask")
			}
			at := access(x.bind)
			if x.who == "another" {
				at.Group = "12346"
			}
			r := newRigWith(t, at)
			ask := func(target string) (int, string) {
				if x.who == "another" {
					return postedAs(t, 12345, []uint32{12346}, r.Addr(), target)
				}
				return posted(t, dialed(t, r.Addr()), target)
			}
			want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[x.trusted]
			if code, body := ask("/v1/plan?config=/etc/shadow"); code != want {
				t.Errorf("another file: %d %s, want %d", code, body, want)
			}
			if code, body := ask("/v1/plan"); code != http.StatusOK {
				t.Errorf("the file in force: %d %s", code, body)
			}
			r.reloader.mu.Lock()
			r.reloader.bad = &admin.ConfigError{Path: "/p.yaml", Problems: []string{`"hunter2" is no duration`}, Text: "1 | hunter2\n    ^\n"}
			r.reloader.mu.Unlock()
			for _, target := range []string{"/v1/plan", "/v1/reload"} {
				code, body := ask(target)
				if target == "/v1/reload" && !x.change {
					if code != http.StatusForbidden || !strings.Contains(body, "may read, and not change") {
						t.Errorf("%s: %d %s", target, code, body)
					}
					continue
				}
				if code != http.StatusUnprocessableEntity || strings.Contains(body, "hunter2") != x.trusted || !strings.Contains(body, "/p.yaml") && !x.trusted {
					t.Errorf("%s: %d %s", target, code, body)
				}
			}
		})
	}
}

// TestMayRead: root and the process's own user may, but not an ID that stands for any user.
func TestMayRead(t *testing.T) {
	for _, x := range []struct {
		uid     uint32
		known   bool
		process int
		whole   bool // all users have IDs of their own here
		want    bool
	}{
		{0, true, 1000, true, true},
		{1000, true, 1000, true, true},
		{1001, true, 1000, true, false},
		{1000, true, 0, true, false},
		{0, false, 0, true, false},
		{1000, false, 1000, true, false},
		{65534, true, 65534, false, false},
		{65534, true, 65534, true, true},
		{65534, true, 0, false, false},
	} {
		if got := admin.MayRead(x.uid, x.known, x.process, x.whole); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}

// TestOwnConnectionsAreRefused: an endpoint that leads to the admin socket leads nowhere, however
// its path is written; others are answered.
func TestOwnConnectionsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	r := newRig(t, "")
	for _, self := range []int{os.Getpid(), os.Getpid() + 1} {
		s := admin.New(admin.Config{Balancer: &r.balancer, Reloader: &r.reloader, Stop: func() {}, Self: self})
		m, err := s.Prepare(t.Context(), access("unix:"+path))
		if err != nil {
			t.Fatal(err)
		}
		m.Commit()
		c := dialed(t, "unix:"+path)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answer, _ := io.ReadAll(c)
		c.Close()
		if refused := len(answer) == 0; refused != (self == os.Getpid()) {
			t.Errorf("refused is %v: %q", refused, answer)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
