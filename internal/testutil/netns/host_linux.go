package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// A Host is a network namespace. Its methods fail the test that made it, and must be called on that test's
// goroutine.
type Host struct {
	t    testing.TB
	tid  int         // of a thread in the namespace
	jobs chan func() // runs functions on that thread; nil: every thread of the process is in the namespace
	dead chan struct{}
}

// Alone runs the test again in a child process with its own network and a loopback that is up. It reports
// whether the test should go on: only in the child. See [privilege.Network].
func Alone(t *testing.T) bool {
	t.Helper()
	need(t)
	if !privilege.Network(t) {
		return false
	}
	switch err := sys.InterfaceUp("lo"); {
	case errors.Is(err, syscall.EPERM): // AppArmor may allow user namespaces but deny their rights
		t.Skip("no network namespace to be used: its loopback:", err)
	case err != nil:
		t.Fatal("loopback:", err)
	}
	return true
}

// need skips the test if there is no ip(8), or fails it if CI is set.
func need(t testing.TB) {
	t.Helper()
	_, err := ip()
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal("no ip(8), which package iproute2 has:", err)
	case err != nil:
		t.Skip("no ip(8), which package iproute2 has:", err)
	}
}

// ip returns the path of ip(8), which may be missing in an ordinary user's PATH.
func ip() (path string, err error) {
	for _, name := range []string{"ip", "/usr/sbin/ip", "/sbin/ip"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", err
}

// Here is the network of this process. It is for children of [Alone], so that no test changes the machine's
// network.
func Here(t testing.TB) *Host {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	first, err2 := os.Readlink("/proc/" + strconv.Itoa(os.Getppid()) + "/ns/net")
	if err == nil && err2 == nil && own == first {
		t.Fatal("this process shares the network of the one that started it: call netns.Alone first")
	}
	return &Host{t: t, tid: os.Getpid()}
}

// New makes a host without links; its loopback is up. For users that may not make one the test is skipped. The
// host ends with the test, and so does every process in it.
func New(t testing.TB) *Host {
	t.Helper()
	need(t)
	h := &Host{t: t, jobs: make(chan func()), dead: make(chan struct{})}
	made := make(chan error)
	go h.run(made)
	if err := <-made; errors.Is(err, syscall.EPERM) {
		t.Skip("no network namespace: that takes root, or netns.Alone:", err)
	} else if err != nil {
		t.Fatal("network namespace:", err)
	}
	t.Cleanup(func() {
		close(h.jobs)
		<-h.dead
	})
	return h
}

// run runs on a goroutine of its own, and the namespace exists on its thread. The thread ends with run, which
// never unlocks it.
func (h *Host) run(made chan<- error) {
	runtime.LockOSThread()
	defer close(h.dead)
	err := sys.Unshare(sys.CLONE_NEWNET)
	if err == nil {
		err = sys.InterfaceUp("lo")
	}
	h.tid = sys.Gettid()
	made <- err
	if err != nil {
		return
	}
	for job := range h.jobs {
		job()
	}
}

// Run calls f on a thread in the namespace: sockets that f makes are there, and stay there after f has
// returned. Goroutines that f starts run elsewhere, and so do dials of package net to a name or to two
// families. If f ends its goroutine, as t.Fatal does, the test fails.
func (h *Host) Run(f func()) {
	h.t.Helper()
	if h.jobs == nil {
		f()
		return
	}
	done := make(chan bool, 1)
	job := func() {
		returned := false
		defer func() { done <- returned }()
		f()
		returned = true
	}
	select {
	case h.jobs <- job:
		if !<-done {
			h.t.Fatal("netns: a function ended the goroutine of a namespace, as t.Fatal does: use t.Error there")
		}
	case <-h.dead:
		h.t.Fatal("netns: the namespace has ended")
	}
}

// Start starts cmd in the namespace. At the end of the test it kills cmd, if that still runs, and waits for it;
// the caller may do both before.
func (h *Host) Start(cmd *exec.Cmd) {
	h.t.Helper()
	if h.jobs != nil {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // if the test's process dies
	}
	var err error
	h.Run(func() { err = cmd.Start() })
	if err != nil {
		h.t.Fatal("netns:", err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if cmd.ProcessState == nil {
			_ = cmd.Wait()
		}
	})
}

// IP runs ip(8) in the namespace with arguments separated by blanks.
func (h *Host) IP(format string, args ...any) {
	h.t.Helper()
	path, err := ip()
	if err != nil {
		h.t.Fatal("netns:", err)
	}
	h.command(path, format, args...)
}

// TC runs tc(8), which is in the same package as ip(8), in the same way.
func (h *Host) TC(format string, args ...any) {
	h.t.Helper()
	path, err := ip()
	if err != nil {
		h.t.Fatal("netns:", err)
	}
	h.command(filepath.Join(filepath.Dir(path), "tc"), format, args...)
}

func (h *Host) command(path, format string, args ...any) {
	h.t.Helper()
	cmd := exec.Command(path, strings.Fields(fmt.Sprintf(format, args...))...)
	var out []byte
	var err error
	h.Run(func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		h.t.Fatalf("netns: %v: %v: %s", cmd.Args, err, out)
	}
}

// A Link joins two hosts.
type Link struct {
	Near, Far netip.Addr // addresses of the joined host, and of the other one
	Device    string     // the same name on both hosts
}

// pairs counts links, so that each has its own addresses.
var pairs atomic.Uint32

// Join makes a link to another host, by a pair of veth(4) devices.
func (h *Host) Join(far *Host) Link {
	h.t.Helper()
	n := pairs.Add(1) - 1
	at := func(host uint32) netip.Addr {
		return netip.AddrFrom4([4]byte{10, 98, byte(n >> 6), byte(n<<2 + host)})
	}
	l := Link{Near: at(1), Far: at(2), Device: fmt.Sprintf("v%d", n)}
	h.IP("link add %s type veth peer name %s netns %d", l.Device, l.Device, far.tid)
	h.IP("address add %v/30 dev %s", l.Near, l.Device)
	far.IP("address add %v/30 dev %s", l.Far, l.Device)
	h.IP("link set %s up", l.Device)
	far.IP("link set %s up", l.Device)
	return l
}

// JoinIPv6 adds IPv6 addresses to a link that Join has made: near on h, beyond on the other host.
func (h *Host) JoinIPv6(far *Host, l Link) (near, beyond netip.Addr) {
	h.t.Helper()
	at := func(host byte) netip.Addr {
		v4 := l.Near.As4()
		return netip.AddrFrom16([16]byte{0: 0xfd, 2: v4[2], 3: v4[3] &^ 3, 15: host})
	}
	near, beyond = at(1), at(2)
	h.IP("address add %v/64 dev %s nodad", near, l.Device)
	far.IP("address add %v/64 dev %s nodad", beyond, l.Device)
	return near, beyond
}

// Address gives the host one more address, on its loopback. Other hosts reach it by a [Host.Route].
func (h *Host) Address(a netip.Addr) {
	h.t.Helper()
	if a.Is4() {
		h.IP("address add %v dev lo", a)
		return
	}
	h.IP("address add %v dev lo nodad", a) // without nodad it would be unusable for a moment
}

// Route sends packets to a by way of the neighbor via.
func (h *Host) Route(a, via netip.Addr) {
	h.t.Helper()
	h.IP("route add %v via %v", a, via)
}

// RemoveRoute removes the route to a that Route, Silence or Prohibit has made. If no other route is left,
// connect(2) and sends then fail with ENETUNREACH.
func (h *Host) RemoveRoute(a netip.Addr) {
	h.t.Helper()
	h.IP("route del %v", a)
}

// Silence drops packets of the host to a without a word: a client at a that connects to this host gets no
// answer. RemoveRoute ends that.
func (h *Host) Silence(a netip.Addr) {
	h.t.Helper()
	h.IP("route add blackhole %v", a)
}

// Prohibit makes the host refuse to send anything to a: there connect(2) fails with EHOSTUNREACH. RemoveRoute
// ends that.
func (h *Host) Prohibit(a netip.Addr) {
	h.t.Helper()
	h.IP("route add unreachable %v", a)
}

// Cut takes the link down: hosts behind it are silent or unreachable, and routes over it are gone.
func (h *Host) Cut(l Link) {
	h.t.Helper()
	h.IP("link set %s down", l.Device)
}

// Mend restores a link that the same host has Cut, but only the routes between the two addresses of the link.
func (h *Host) Mend(l Link) {
	h.t.Helper()
	h.IP("link set %s up", l.Device)
}
