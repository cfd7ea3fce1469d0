//go:build linux

// Package killed_test kills the program with SIGKILL while sessions are in the lane.
package killed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
	"github.com/penstock/penstock/proxy/rollback"
)

func TestMain(m *testing.M) { leak.Main(m) }

func echoes(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("echo of %q: %q, %v", text, got, err)
	}
}

// pinsAgain removes the pins of the process, and wants it to pin them again.
func pinsAgain(t *testing.T, p *program.Program, pins string) {
	t.Helper()
	list, err := os.ReadDir(pins)
	must(t, err)
	for _, e := range list {
		must(t, os.Remove(filepath.Join(pins, e.Name())))
	}
	p.Until("all is pinned again", func(*admin.Status) bool {
		now, err := os.ReadDir(pins)
		return err == nil && len(now) == len(list) && strings.Contains(p.Log.String(), "pinned again")
	})
}

// TestKilled: sessions in the lane go on while the program is dead by SIGKILL. The next process adopts them, counts on, and reports
// their ends, also of one that has ended while nothing ran.
func TestKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a BPF file system of the test's own takes root")
	}
	if !privilege.NetworkAndMounts(t) {
		return
	}
	dir := sockets.Dir(t)
	must(t, errors.Join(sys.InterfaceUp("lo"), syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), os.Mkdir(dir+"/bpf", 0o700),
		syscall.Mount("bpf", dir+"/bpf", "bpf", 0, "mode=0700")))
	t.Cleanup(func() { must(t, syscall.Unmount(dir+"/bpf", syscall.MNT_DETACH)) })
	path := program.Build(t)
	const at = "127.0.0.1:7000" // the network is the test's own
	endpoint := sockets.Server(t, sockets.Echo)
	configuration := func(lifetime string) string {
		return fmt.Sprintf(`
lane: {devices: [lo], sessions: 64, after: 5ms, pins: %s/bpf/lane}
listeners: [{name: l, bind: %q, upstream: u, lane: require, timeouts: {lifetime: %s}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]
`, dir, at, lifetime, endpoint)
	}
	first := program.Start(t, path, dir, configuration("1h"), "--drain-timeout", "1s")
	var clients []*net.TCPConn
	for n := range 3 {
		c := sockets.Dial(t, at)
		clients = append(clients, c)
		first.Until("its session has left", func(s *admin.Status) bool {
			echoes(t, c, "there and back")
			return s.Lane != nil && s.Lane.Left == int64(n+1)
		})
	}
	lived := time.Now()
	pinsAgain(t, first, dir+"/bpf/lane")
	first.Kill()
	for _, c := range clients {
		echoes(t, c, "while nothing runs")
	}
	must(t, clients[2].Close())

	next := program.Start(t, path, dir, configuration("1h"), "--drain-timeout", "1s")
	next.Until("they are adopted", func(s *admin.Status) bool { return s.Connections.Active == 2 })
	for _, c := range clients[:2] {
		echoes(t, c, "adopted")
	}
	next.Until("their bytes are counted", func(s *admin.Status) bool {
		n := 2 * int64(len("adopted"))
		return s.Bytes.ClientToEndpoint.Lane == n && s.Bytes.EndpointToClient.Lane == n
	})
	known(t, next, 2, lived)
	fresh := sockets.Dial(t, at)
	next.Until("another session leaves", func(s *admin.Status) bool {
		echoes(t, fresh, "there and back")
		return s.Lane.Left == 1
	})
	must(t, clients[0].Close())
	next.Until("one has ended", func(s *admin.Status) bool { return s.Connections.Active == 2 })
	echoes(t, clients[1], "the other goes on")
	next.Configure(configuration("2ms"))
	plan, err := next.Plan(t.Context(), filepath.Join(dir, "penstock.yaml"))
	must(t, err)
	if len(plan.Changes) != 1 || plan.Changes[0].Connections != 2 || plan.Changes[0].Disposition != admin.Keep {
		t.Errorf("the plan is %+v, want that the adopted session and the other one stay", plan)
	}
	_, err = next.Client.Reload(t.Context(), rollback.Options{})
	must(t, err)
	for _, c := range []*net.TCPConn{fresh, clients[1]} {
		echoes(t, c, "it has the timeouts that it began with, or was adopted by")
	}
	must(t, next.Process.Signal(syscall.SIGTERM))
	for _, c := range []*net.TCPConn{fresh, clients[1]} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("at the end of the drain: %v", err)
		}
	}
}

// known expects that the listener's sessions are as many adopted ones, of its upstream and its endpoint, from before a time.
func known(t *testing.T, p *program.Program, n int, before time.Time) {
	t.Helper()
	age := time.Since(before)
	list, err := p.Sessions(context.Background(), admin.SessionQuery{Listener: "l", Verdict: admin.AnyVerdict}, admin.SessionOrder{})
	must(t, err)
	if len(list.Sessions) != n {
		t.Errorf("%d sessions, want %d", len(list.Sessions), n)
	}
	for _, s := range list.Sessions {
		if !s.Adopted || s.Upstream != "u" || s.Name == "" || s.Name != s.Endpoint || s.AgeUs < age.Microseconds() || s.Verdict == "" {
			t.Errorf("%+v, want an age of %v at least", s, age)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
