package admin_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/sockopt"
)

func TestParseAddress(t *testing.T) {
	for bind, want := range map[string]string{
		"unix:/run/p.sock":           "unix:/run/p.sock?mode=0660",
		"unix:/run/p.sock?mode=0600": "unix:/run/p.sock?mode=0600",
		"127.0.0.1:9000":             "127.0.0.1:9000",
		"127.1.2.3:9000":             "127.1.2.3:9000",
		"[::1]:9000":                 "[::1]:9000",
		"localhost:9000":             "localhost:9000",
		"LOCALHOST:9000":             "LOCALHOST:9000",
		"localhost.:9000":            "localhost.:9000",
		":9000":                      ":9000",
		"10.0.0.1:9000":              "10.0.0.1:9000",
	} {
		if got, err := admin.ParseAddress(bind); err != nil || got.String() != want {
			t.Errorf("%s is %v, %v, want %s", bind, got, err, want)
		}
	}
	for bind, want := range map[string]string{
		"unix:@penstock": "an abstract socket is open to every user",
		"9000":           "write :9000",
		"unix:":          "write unix:/path",
	} {
		if _, err := admin.ParseAddress(bind); !errors.Is(err, sockopt.ErrAddress) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bind, err, want)
		}
	}
}

// TestSocketIsNotEverybodys: only its owner and group can use the socket. A path left behind by a
// process is taken over.
func TestSocketIsNotEverybodys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	r := newRig(t, "unix:"+path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	other := newRig(t, "127.0.0.1:0")
	if _, err := other.Prepare(t.Context(), access("unix:"+path)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another server gets the same path: %v", err)
	}
	r.end(t)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the path is still there: %v", err)
	}
}

// TestNobodyElseIsAskedToLeave: a process of another program keeps its address.
func TestNobodyElseIsAskedToLeave(t *testing.T) {
	var asked sync.Map
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { asked.Store(q.URL.Path, true) }))
	defer s.Close()
	_, err := newQuietRig(t).Prepare(t.Context(), access(s.Listener.Addr().String()))
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "ss -tanp sport = :") {
		t.Errorf("%v", err)
	}
	if _, ok := asked.Load("/v1/leave"); ok {
		t.Error("the other program was asked to leave")
	}
}

func TestNobodyIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	r := newRig(t, "unix:"+path)
	r.end(t)
	tcp := newRig(t, "127.0.0.1:0")
	tcp.end(t)
	for _, c := range []*admin.Client{r.Client, tcp.Client} {
		if _, err := c.Status(t.Context()); !errors.Is(err, admin.ErrNotRunning) || strings.Contains(err.Error(), "mode") {
			t.Errorf("%v", err)
		}
	}
}

func ask(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + changeToken + "\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	answer.Body.Close()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	a, err := sockopt.Parse(addr)
	must(t, err)
	c, err := net.Dial(a.Network, a.Name)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// accepted connects to a server's address, and waits until the server has accepted.
func (r *rig) accepted(t *testing.T) net.Conn {
	t.Helper()
	n := r.Guests()
	c := dial(t, r.Addr())
	condition.Await(t, "the connection is accepted", func() bool { return r.Guests() != n })
	return c
}

// TestMoves: an address that stays keeps its socket, one that goes is free at once, and
// clients connected there are still answered.
func TestMoves(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	r := newRig(t, "unix:"+a)
	before, err := os.Lstat(a)
	must(t, err)
	old := []net.Conn{r.accepted(t), r.accepted(t), r.accepted(t)}
	r.move(t, "unix:"+a)
	if after, err := os.Lstat(a); err != nil || !os.SameFile(before, after) {
		t.Errorf("the socket has changed: %v", err)
	}
	m, err := r.Prepare(t.Context(), access("unix:"+b))
	must(t, err)
	if err := m.Abort(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(b); !errors.Is(err, fs.ErrNotExist) || r.Addr() != "unix:"+a {
		t.Errorf("the server listens at %s, and %v", r.Addr(), err)
	}
	if _, err := r.Status(t.Context()); err != nil {
		t.Error(err)
	}
	r.move(t, "unix:"+b)
	ask(t, old[0])
	ask(t, dial(t, "unix:"+b))
	gone(t, a)
	r.move(t, "")
	gone(t, b)
	ask(t, old[1])
	if r.Addr() != "" {
		t.Errorf("the server listens at %s", r.Addr())
	}
	r.move(t, "unix:"+a)
	ask(t, dial(t, "unix:"+a))
	r.Leave()
	r.move(t, "unix:"+b) // too late
	gone(t, a)
	gone(t, b)
	ask(t, old[2])
}

// TestAnotherNameOfTheAddress: the server may move to an address that is in the way of itself.
func TestAnotherNameOfTheAddress(t *testing.T) {
	t.Parallel()

	r := newRig(t, "127.0.0.1:0")
	for _, host := range []string{"localhost", "127.0.0.1"} {
		_, port, err := net.SplitHostPort(r.Addr())
		must(t, err)
		r.move(t, net.JoinHostPort(host, port))
		if _, err := r.Status(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestRemovedSocket: a socket that was removed is made again when the address is prepared again, and goes with its server; where that cannot
// be, the server stays as it is.
func TestRemovedSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	path := filepath.Join(dir, "s")
	must(t, os.Mkdir(dir, 0o700))
	r := newRig(t, "unix:"+path)
	for _, remove := range []string{path, dir} {
		must(t, os.RemoveAll(remove))
		if r.move(t, "unix:"+path); r.Addr() != "unix:"+path {
			t.Errorf("without %s it is at %q", remove, r.Addr())
		}
		if _, err := r.Status(t.Context()); (err == nil) != (remove == path) {
			t.Errorf("without %s: %v", remove, err)
		}
	}
	must(t, os.Mkdir(dir, 0o700))
	r.move(t, "unix:"+path)
	if _, err := r.Status(t.Context()); err != nil {
		t.Error(err)
	}
	r.end(t)
	gone(t, path)
}

// gone waits until no socket listens at a path, and the path does not exist.
func gone(t *testing.T, path string) {
	t.Helper()
	condition.Await(t, path+" is gone", func() bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestPrepareFails: the error is one line, and nothing moves.
func TestPrepareFails(t *testing.T) {
	r := newRig(t, "")
	for _, bind := range []string{"unix:" + filepath.Join(t.TempDir(), "no", "s"), ":9000", "192.0.2.1:9000", "unix:/dev/null"} {
		if _, err := r.Prepare(t.Context(), access(bind)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", bind, err)
		}
	}
	if _, err := r.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestEndWaitsForAnswers: the end waits for unfinished answers, up to its time limit.
func TestEndWaitsForAnswers(t *testing.T) {
	begun, on := make(chan struct{}), make(chan struct{})
	r := newRig(t, "")
	r.reloader.apply = func() {
		close(begun)
		<-on
	}
	answered := make(chan error)
	go func() {
		_, err := r.Reload(t.Context(), rollback.Options{})
		answered <- err
	}()
	<-begun
	ended := make(chan struct{})
	go func() {
		r.end(t)
		close(ended)
	}()
	gone(t, strings.TrimPrefix(r.bind, "unix:"))
	close(on)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	<-ended
}

// TestAllAtOnce is a test for the race detector.
func TestAllAtOnce(t *testing.T) {
	r := newRig(t, "")
	other := "unix:" + filepath.Join(t.TempDir(), "s")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				c, err := admin.NewClient(r.bind)
				if err != nil {
					t.Error(err)
					return
				}
				c.Reload(t.Context(), rollback.Options{Confirm: time.Minute})
				c.Confirm(t.Context(), 0)
				c.Status(t.Context())
				c.Rollback(t.Context(), 0)
			}
		})
	}
	all.Go(func() {
		for i := range 20 {
			r.move(t, []string{other, r.bind}[i%2])
		}
	})
	all.Wait()
	r.move(t, r.bind)
	if _, err := r.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestModeChanges: the mode changes with the address, also to the default mode. The socket stays,
// and an aborted change has no effect.
func TestModeChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	r := newRig(t, "unix:"+path+"?mode=0600")
	before, err := os.Lstat(path)
	must(t, err)
	has := func(mode os.FileMode) {
		t.Helper()
		now, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, now) || now.Mode().Perm() != mode {
			t.Errorf("%v, %v: %v", now, err, now.Mode())
		}
	}
	has(0o600)
	m, err := r.Prepare(t.Context(), access("unix:"+path))
	must(t, err)
	if err := m.Abort(); err != nil {
		t.Error(err)
	}
	has(0o600)
	r.move(t, "unix:"+path)
	has(0o660)
	r.move(t, "unix:"+path+"?mode=0666")
	has(0o666)
	r.move(t, "unix:"+path+"?mode=0666")
	has(0o666)
	r.move(t, "unix:"+path)
	has(0o660)
	if _, err := r.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestChangesOfThoseWhoHaveLeft: a client that has closed its connection before its request was read, because this process was
// stopped for a while, was told that nothing has happened, so nothing happens.
func TestChangesOfThoseWhoHaveLeft(t *testing.T) {
	t.Parallel()

	for _, bind := range []string{"127.0.0.1:" + sockets.Port(t), "unix:" + filepath.Join(t.TempDir(), "s")} {
		r := newQuietRig(t)
		m, err := r.Prepare(t.Context(), access(bind))
		must(t, err)
		network, address := "tcp", bind
		if path, unix := strings.CutPrefix(address, "unix:"); unix {
			network, address = "unix", path
		}
		for range 10 {
			c, err := net.Dial(network, address)
			must(t, err)
			fmt.Fprintf(c, "POST /v1/listener/drain?listener=web HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s\r\n", changeToken, marked)
			must(t, c.Close())
		}
		m.Commit()
		client, err := admin.NewClientAs(r.Addr(), &admin.Credentials{Token: changeToken})
		must(t, err)
		_, err = client.Status(t.Context())
		must(t, err)
		r.end(t)
		if did := r.balancer.last(); did != "" {
			t.Errorf("%s: %s, for a client that has left", bind, did)
		}
	}
}
