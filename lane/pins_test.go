package lane_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/lane/internal/program"
)

// asVictim is the environment variable that makes a process a proxy that will be killed. Its value is the
// proxy's target and the directory of its pins.
const asVictim = "PENSTOCK_TEST_LANE_VICTIM"

// diesReturning at the end of the pins' directory makes a victim die while a session comes back.
const diesReturning = " dies"

// victim runs a proxy until it is killed, if this process was started for that. The proxy prints its address,
// and prints how many sessions have left user space whenever that changes.
func victim() {
	what, ok := os.LookupEnv(asVictim)
	if !ok {
		return
	}
	target, pin, _ := strings.Cut(what, " ")
	pin, dies := strings.CutSuffix(pin, diesReturning)
	cfg := lane.Config{Devices: []string{"lo"}, Sessions: 64, Pin: pin}
	if dies {
		cfg.Restored = func(*lane.Session, *net.TCPConn, *net.TCPConn) { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	}
	err := sys.InterfaceUp("lo") // the network namespace is new
	var l *lane.Lane
	var at net.Listener
	if err == nil {
		l, err = lane.Open(cfg)
	}
	if err == nil {
		at, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(at.Addr())
	go func() {
		for last := uint64(0); ; time.Sleep(time.Millisecond) {
			if n := l.Stats().Left; n != last {
				fmt.Println(n)
				last = n
				for _, s := range l.Sessions() {
					if dies && s.Left() {
						_ = s.ComeBack(0)
					}
				}
			}
		}
	}()
	for {
		c, err := at.Accept()
		if err != nil {
			os.Exit(1)
		}
		s, err := net.Dial("tcp", target)
		if err != nil {
			os.Exit(1)
		}
		if _, err := l.Join(c.(*net.TCPConn), s.(*net.TCPConn), nil); err != nil {
			os.Exit(1)
		}
	}
}

// A proxy is a process that runs victim.
type proxy struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	addr string
}

func startProxy(t *testing.T, target, pin string) *proxy {
	t.Helper()
	return startProxyIn(t, target, pin, 0)
}

// startProxyIn starts a proxy in new namespaces of the given kinds.
func startProxyIn(t *testing.T, target, pin string, namespaces uintptr) *proxy {
	t.Helper()
	cmd := exec.Command(privilege.Self, "-test.run=^$")
	cmd.Env = append(os.Environ(), asVictim+"="+target+" "+pin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: namespaces}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(t, err)
	p := &proxy{cmd: cmd, out: bufio.NewReader(out)}
	t.Cleanup(p.kill)
	p.addr = p.line(t)
	return p
}

func (p *proxy) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *proxy) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the proxy says %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// talkers connects clients, which talk until n sessions have left user space.
func (p *proxy) talkers(t *testing.T, n int) (clients []*net.TCPConn) {
	t.Helper()
	for range n {
		c := must.Get(net.Dial("tcp", p.addr))(t)
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		clients = append(clients, c.(*net.TCPConn))
	}
	left := make(chan string)
	go func() {
		for line := ""; line != fmt.Sprint(n) && !strings.HasPrefix(line, "the"); left <- line {
			line, _ = p.out.ReadString('\n')
			line = strings.TrimSpace(line)
		}
		close(left)
	}()
	for {
		for _, c := range clients {
			echo(t, c, "before")
		}
		select {
		case _, more := <-left:
			if !more {
				return clients
			}
		default:
		}
	}
}

func echo(t *testing.T, c *net.TCPConn, message string) {
	t.Helper()
	must.Get(io.WriteString(c, message))(t)
	sockets.Expect(t, c, message)
}

// filesystem mounts a BPF file system in the test's mount namespace.
func filesystem(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	must.Do(t, syscall.Mount("bpf", dir, "bpf", 0, "mode=0700"))
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	pins := dir + "/lane"
	must.Do(t, os.Mkdir(pins, 0o700))
	return pins
}

// aloneWithMounts is alone with its own mount namespace.
func aloneWithMounts(t *testing.T) bool {
	t.Helper()
	t.Parallel()
	permitted(t)
	if !privilege.NetworkAndMounts(t) {
		return false
	}
	must.Do(t, sys.InterfaceUp("lo"))
	return true
}

// pinsAlone is aloneWithMounts with a directory for pins, or "".
func pinsAlone(t *testing.T) string {
	t.Helper()
	if !aloneWithMounts(t) {
		return ""
	}
	return filesystem(t)
}

// TestKilled: sessions of a pinned lane survive SIGKILL of the proxy. The next process adopts them, goes on
// counting, and ends them.
func TestKilled(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	p := startProxy(t, sockets.Server(t, sockets.Echo), dir)
	// One session is never in the lane. It is only armed, with the first of the others.
	silent := must.Get(net.Dial("tcp", p.addr))(t)
	defer silent.Close()
	_ = silent.SetDeadline(time.Now().Add(condition.Patience))
	const sessions = 20
	clients := p.talkers(t, sessions)
	if _, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}); !errors.Is(err, lane.ErrBusy) || !strings.HasSuffix(err.Error(), fmt.Sprintf("by process %d", p.cmd.Process.Pid)) {
		t.Errorf("a second process opens it: %v", err)
	}
	began := time.Now()
	p.kill()
	if _, err := silent.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a session in user space, when the process dies: %v", err)
	}
	for range 50 {
		for _, c := range clients {
			echo(t, c, "the proxy is dead")
		}
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Linger: 100 * time.Millisecond}))(t)
	if st := l.Stats(); st.Adopted != sessions || st.Lane != sessions || len(l.Sessions()) != sessions || st.Failed != 0 {
		t.Errorf("%+v, %d sessions", st, len(l.Sessions()))
	}
	renewed(clients) // it may have taken as long as their deadlines to open the lane
	for _, c := range clients {
		echo(t, c, "adopted")
	}
	for _, s := range l.Sessions() {
		if n := s.Bytes(); n[0] < 50*17 || n[1] < 50*17 || s.Age() < time.Since(began) {
			t.Errorf("counted %v, age %v", n, s.Age())
		}
	}
	comeBackAdopted(t, l, clients)
	clients[0].CloseWrite()
	sockets.ExpectAll(t, clients[0], "")
	condition.Await(t, "the ended session is gone", func() bool { return len(l.Sessions()) == sessions-1 })
	must.Do(t, l.Leave())
	for _, c := range clients[1:] {
		echo(t, c, "left alone")
	}
	l = must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}))(t)
	renewed(clients)
	must.Do(t, l.Close())
	for _, c := range clients[1:] {
		wantReset(t, "client", c)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("pinned after Close: %v, %v", left, err)
	}
}

// renewed sets the deadlines of connections again.
func renewed(clients []*net.TCPConn) {
	for _, c := range clients {
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
	}
}

// comeBackAdopted makes adopted sessions come back and leave again.
func comeBackAdopted(t *testing.T, l *lane.Lane, clients []*net.TCPConn) {
	t.Helper()
	for _, s := range l.Sessions() {
		if err := s.ComeBack(time.Second); err != nil {
			t.Error(err)
		}
	}
	for _, c := range clients {
		echo(t, c, "in user space of another process")
	}
	if st := l.Stats(); st.Lane != 0 || st.Returned != uint64(len(clients)) {
		t.Errorf("%+v", st)
	}
	for _, s := range l.Sessions() {
		s.MayLeave()
	}
	condition.Await(t, "they leave again", func() bool {
		for _, c := range clients {
			echo(t, c, "once more")
		}
		return l.Stats().Lane == len(clients)
	})
}

// TestKilledReturning: a process dies while a session comes back. In the next process the session is in the
// lane again, and can come back.
func TestKilledReturning(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	p := startProxy(t, sockets.Server(t, sockets.Echo), dir+diesReturning)
	dialed := must.Get(net.Dial("tcp", p.addr))(t)
	defer dialed.Close()
	c := dialed.(*net.TCPConn)
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	echo(t, c, "device of both sides")
	died := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, p.out)
		close(died)
	}()
	missing, b := 0, make([]byte, 100)
	condition.Await(t, "the session leaves, is stopped, and the process dies", func() bool {
		if n, err := c.Write(b[:10]); err == nil {
			missing += n
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, _ := c.Read(b)
		missing -= n
		select {
		case <-died:
			return true
		default:
			return false
		}
	})
	p.kill()
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Linger: 100 * time.Millisecond}))(t)
	defer l.Close()
	_ = c.SetDeadline(time.Now().Add(condition.Patience))
	if _, err := io.ReadFull(c, make([]byte, missing)); err != nil {
		t.Fatal(missing, "bytes:", err)
	}
	echo(t, c, "it goes on")
	s := l.Sessions()[0]
	if st := l.Stats(); st.Adopted != 1 || st.Returned != 0 || st.Reset != 0 || !s.Left() {
		t.Errorf("%+v, in the lane: %v", st, s.Left())
	}
	must.Do(t, s.ComeBack(0)) // from now on it stays in user space
	moves(t, "adopted", s, func() { echo(t, c, "so it is not idle") })
}

// moves moves bytes in user space by a call of move, and checks that the session is idle from then on.
func moves(t *testing.T, name string, s *lane.Session, move func()) {
	t.Helper()
	before := time.Now()
	move()
	condition.Await(t, "bytes that were moved count for Idle of the "+name+" session", func() bool {
		at := time.Now() // before Idle, which is counted from this time or a later one
		return !at.Add(-s.Idle()).Before(before)
	})
}

// TestKilledUnpinned: if the proxy of an unpinned lane is killed, each session is reset as soon as an endpoint
// sends something.
func TestKilledUnpinned(t *testing.T) {
	if !alone(t) {
		return
	}
	p := startProxy(t, sockets.Server(t, sockets.Echo), "")
	clients := p.talkers(t, 4)
	p.kill()
	for _, c := range clients {
		_, err := io.WriteString(c, "is anyone there?")
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%v, want a reset", err)
		}
	}
}

// crashed leaves the pins of a lane as a process does that is killed.
func crashed(t *testing.T, dir string, devices ...string) {
	t.Helper()
	l := must.Get(lane.Open(lane.Config{Devices: devices, Pin: dir, Sessions: 32}))(t)
	kept := dir + "-kept"
	must.Do(t, os.Mkdir(kept, 0o700))
	move(t, dir, kept)
	must.Do(t, l.Close())
	move(t, kept, dir)
	must.Do(t, os.Remove(kept))
}

// move moves all files of a directory.
func move(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range names(t, from) {
		must.Do(t, os.Rename(filepath.Join(from, name), filepath.Join(to, name)))
	}
}

// names returns the files of a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	list := must.Get(os.ReadDir(dir))(t)
	for _, e := range list {
		all = append(all, e.Name())
	}
	return all
}

// wholePins returns the pins of a lane at these devices.
func wholePins(devices ...int) (all []string) {
	all = []string{"events", "flows", "sessions"}
	for _, d := range devices {
		all = append(all, fmt.Sprintf("link-%d-egress", d), fmt.Sprintf("link-%d-ingress", d))
	}
	slices.Sort(all)
	return all
}

// serves opens the pins, checks that sessions leave user space, and closes the lane.
func serves(t *testing.T, dir string, pins []string, devices ...string) {
	t.Helper()
	l := must.Get(lane.Open(lane.Config{Devices: devices, Pin: dir, Sessions: 16}))(t)
	if got := names(t, dir); !slices.Equal(got, pins) {
		t.Errorf("pinned: %v, want %v", got, pins)
	}
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("pinned after Close: %v", left)
	}
}

// TestPinnedDeviceAnew: if a device was removed and made again with the same index, its pinned link is
// replaced.
func TestPinnedDeviceAnew(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	here := netns.Here(t)
	add := func() { here.IP("link add here index 100 type veth peer name there index 101") }
	add()
	crashed(t, dir, "lo", "here")
	here.IP("link del here")
	add()
	serves(t, dir, wholePins(1, 100), "lo", "here")
}

// TestPinnedElsewhere: pins of another network namespace are refused and not changed as long as the namespace
// is in use. After that they are replaced.
func TestPinnedElsewhere(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	p := startProxyIn(t, "127.0.0.1:1", dir, syscall.CLONE_NEWNET)
	inUse := must.Get(os.Open(fmt.Sprintf("/proc/%d/ns/net", p.cmd.Process.Pid)))(t)
	defer inUse.Close()
	p.kill()
	for _, part := range [][]string{nil, {"sessions"}} {
		for _, name := range part {
			must.Do(t, os.Remove(filepath.Join(dir, name)))
		}
		before := names(t, dir)
		_, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
		if !errors.Is(err, lane.ErrBusy) || !strings.Contains(err.Error(), "network namespace") {
			t.Errorf("pins of a network namespace that is in use: %v", err)
		}
		if got := names(t, dir); !slices.Equal(got, before) {
			t.Errorf("pinned: %v, want %v", got, before)
		}
	}
	must.Do(t, inUse.Close())
	var l *lane.Lane
	var err error
	condition.Await(t, "the kernel has taken the network namespace down", func() bool {
		l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
		return !errors.Is(err, lane.ErrBusy)
	})
	must.Do(t, err)
	must.Do(t, l.Close())
	p = startProxyIn(t, "127.0.0.1:1", dir, syscall.CLONE_NEWNET)
	p.kill()
	condition.Await(t, "the pins are replaced", func() bool {
		l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir})
		return !errors.Is(err, lane.ErrBusy)
	})
	must.Do(t, err)
	joined(t, l, "tcp", "127.0.0.1:0").talk(t)
	must.Do(t, l.Close())
}

// TestPinnedEmpty: a pinned table of another size is replaced by a table of the wanted size if it has no
// session. If it has one it keeps its size.
func TestPinnedEmpty(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	for _, sessions := range []int{16, 64} {
		crashed(t, dir, "lo")
		l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: sessions}))(t)
		if l.Size() != sessions {
			t.Errorf("room for %d sessions, want %d", l.Size(), sessions)
		}
		if got := names(t, dir); !slices.Equal(got, wholePins(1)) {
			t.Errorf("pinned: %v", got)
		}
		p := joined(t, l, "tcp", "127.0.0.1:0")
		p.talk(t)
		must.Do(t, l.Leave())
		l = must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 32}))(t)
		if st := l.Stats(); l.Size() != sessions || st.Adopted != 1 {
			t.Errorf("room for %d sessions, want %d with the session, of which %d are adopted", l.Size(), sessions, st.Adopted)
		}
		must.Do(t, l.Close())
	}
}

// TestPinnedTwice: if several lanes are opened with the same pins at the same moment, exactly one is opened and
// the others are busy, with and without existing pins.
func TestPinnedTwice(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	const rivals = 4
	for n, began := 0, time.Now(); n < 3 || n < 30 && time.Since(began) < 3*time.Second; n++ {
		if n%2 == 1 {
			crashed(t, dir, "lo")
		}
		lanes, start := make(chan *lane.Lane, rivals), make(chan struct{})
		for range rivals {
			go func() {
				<-start
				l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 16})
				if err != nil && !errors.Is(err, lane.ErrBusy) {
					t.Error(err)
				}
				lanes <- l
			}()
		}
		close(start)
		var opened []*lane.Lane
		for range rivals {
			if l := <-lanes; l != nil {
				opened = append(opened, l)
			}
		}
		if len(opened) != 1 {
			t.Errorf("round %d: %d lanes are open", n, len(opened))
		} else if got := names(t, dir); !slices.Equal(got, wholePins(1)) {
			t.Errorf("round %d: pinned: %v", n, got)
		}
		for _, l := range opened {
			joined(t, l, "tcp", "127.0.0.1:0").talk(t)
			must.Do(t, l.Close())
		}
	}
}

// asStepper is the environment variable that makes a process open the lane, and then close it or leave it as a
// crash does. Its value says after which step of pinning and unpinning the process is killed, whether it closes
// the lane, and the directory of the pins.
const asStepper = "PENSTOCK_TEST_LANE_STEPS"

// stepper opens the lane as asStepper says, if this process was started for that. The process is killed, or
// exits with 0 at its end.
func stepper() {
	what, ok := os.LookupEnv(asStepper)
	if !ok {
		return
	}
	var last, n int
	var closes bool
	var pin string
	_, err := fmt.Sscan(what, &last, &closes, &pin)
	program.Step = func() {
		if n++; n == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	var l *lane.Lane
	if err == nil {
		l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 16, Pin: pin})
	}
	if err == nil && closes {
		err = l.Close()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// steps runs a process that is killed after a step, and reports whether it was killed.
func steps(t *testing.T, last int, closes bool, pin string) (killed bool) {
	t.Helper()
	condition.Await(t, "no other lane is attached", func() bool { // the lane of the process before ends some time after the process
		cmd := exec.Command(privilege.Self, "-test.run=^$")
		cmd.Env = append(os.Environ(), fmt.Sprint(asStepper, "=", last, " ", closes, " ", pin))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil:
			killed = false
		case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
			killed = true
		case strings.Contains(string(out), lane.ErrBusy.Error()):
			return false
		default:
			t.Fatalf("%v: %s", err, out)
		}
		return true
	})
	return killed
}

// attached returns how many programs are attached to the loopback.
func attached(t *testing.T) (n int) {
	t.Helper()
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		all := must.Get(link.QueryPrograms(link.QueryOptions{Target: 1, Attach: at}))(t)
		n += len(all.Programs)
	}
	return n
}

// TestDeathBetweenSteps: a process dies between two steps of pinning, attaching, unpinning and detaching, and
// so does the process after it. The next process then has a complete set of pins, one pair of programs, and
// sessions that leave user space. Nothing is left when that process ends in order. The test covers all pairs of
// steps.
func TestDeathBetweenSteps(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	n := 0
	for killed := true; killed; {
		n++
		killed = steps(t, n, true, dir)
		for again := range n%3/2 + 1 { // loading the programs takes its time
			if again > 0 {
				steps(t, n, true, dir)
				steps(t, 1+n/3, true, dir)
			}
			var l *lane.Lane
			condition.Await(t, "no other lane is attached", func() (opened bool) {
				var err error
				if l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 16}); err != nil && !errors.Is(err, lane.ErrBusy) {
					t.Fatalf("after step %d and %d: %v", n, again, err)
				}
				return err == nil
			})
			if got, want := names(t, dir), wholePins(1); !slices.Equal(got, want) || attached(t) != 2 {
				t.Errorf("after step %d and %d %v is pinned, want %v, and %d programs are attached", n, again, got, want, attached(t))
			}
			joined(t, l, "tcp", "127.0.0.1:0").talk(t)
			must.Do(t, l.Close())
			if got := names(t, dir); len(got) > 0 {
				t.Errorf("after step %d and %d, and Close, %v is pinned", n, again, got)
			}
			condition.Await(t, "no program is attached", func() bool { return attached(t) == 0 }) // the kernel detaches later what was unpinned
		}
	}
	if least := 3 + 4 + 5; n <= least {
		t.Errorf("%d steps, want more than %d: three maps, two programs that are attached and pinned, and all pins", n, least)
	}
}

// TestDeathBetweenStepsOfAdoption: no session is lost if a process dies while it takes over pinned programs.
func TestDeathBetweenStepsOfAdoption(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	p := startProxy(t, sockets.Server(t, sockets.Echo), dir)
	clients := p.talkers(t, 2)
	p.kill()
	n := 0
	for killed := true; killed; {
		n++
		killed = steps(t, n, false, dir)
		renewed(clients)
		for _, c := range clients {
			echo(t, c, "without a process")
		}
	}
	if n != 3 {
		t.Errorf("the last of %d runs was killed after no step, want that of 3", n)
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}))(t)
	defer l.Close()
	if st := l.Stats(); st.Adopted != uint64(len(clients)) || attached(t) != 2 {
		t.Errorf("%+v, and %d programs are attached", st, attached(t))
	}
	renewed([]*net.TCPConn(clients))
	for _, c := range clients {
		echo(t, c, "adopted")
	}
}

// removed removes files of a directory, or all of them if none is named.
func removed(t *testing.T, dir string, files ...string) {
	t.Helper()
	if len(files) == 0 {
		files = names(t, dir)
	}
	for _, name := range files {
		must.Do(t, os.Remove(filepath.Join(dir, name)))
	}
}

// TestRepin: a set of pins that was removed is pinned again, as often as it is removed, also by a process that
// has adopted it. The next lane adopts the set.
func TestRepin(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	var p pair
	for round := range 2 {
		l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 16}))(t)
		if round == 0 {
			p = joined(t, l, "tcp", "127.0.0.1:0")
			p.talk(t)
			condition.Await(t, "the session has left", p.Left)
		} else if n := l.Stats().Adopted; n != 1 {
			t.Errorf("%d sessions are adopted", n)
		}
		for range 2 {
			if again, err := l.Repin(); again || err != nil {
				t.Errorf("all is there: %v, %v", again, err)
			}
			removed(t, dir)
			if again, err := l.Repin(); !again || err != nil {
				t.Errorf("all was removed: %v, %v", again, err)
			}
			if got := names(t, dir); !slices.Equal(got, wholePins(1)) {
				t.Errorf("pinned: %v", got)
			}
		}
		p.exchange(t, []byte("on"), p.client, p.server)
		must.Do(t, l.Leave())
		if again, err := l.Repin(); again || !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Leave: %v, %v", again, err)
		}
		p.exchange(t, []byte("on"), p.client, p.server)
	}
	serves(t, dir, wholePins(1), "lo")
}

// foreign pins a map that belongs to another owner.
func foreign(t *testing.T, path string) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		err = errors.Join(m.Pin(path), m.Close())
	}
	must.Do(t, err)
}

// TestRepinNot: a set of pins with missing files, pins of another owner, and another directory are errors, and
// are not changed.
func TestRepinNot(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Sessions: 16}))(t)
	defer l.Close()
	refused := func(what string, want error) {
		t.Helper()
		before := names(t, dir)
		if again, err := l.Repin(); again || !errors.Is(err, want) {
			t.Errorf("%s: %v, %v", what, again, err)
		}
		if got := names(t, dir); !slices.Equal(got, before) {
			t.Errorf("%s: pinned: %v, want %v", what, got, before)
		}
	}
	pinsAgain := func() {
		t.Helper()
		removed(t, dir)
		if again, err := l.Repin(); !again || err != nil {
			t.Errorf("%v, %v", again, err)
		}
	}
	for _, name := range wholePins(1) {
		removed(t, dir, name)
		refused("without "+name, fs.ErrNotExist)
		pinsAgain()
	}
	for _, name := range []string{"events", "sessions"} {
		removed(t, dir, name)
		foreign(t, filepath.Join(dir, name))
		refused("another "+name, fs.ErrExist)
		removed(t, dir)
		foreign(t, filepath.Join(dir, name))
		refused("another "+name+" alone", fs.ErrExist)
		pinsAgain()
	}
	removed(t, dir)
	foreign(t, filepath.Join(dir, "link-7-ingress"))
	refused("a file of another set", fs.ErrExist)
	removed(t, dir)
	must.Do(t, errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)))
	refused("the directory made anew", fs.ErrNotExist)
}

// TestPinnedInPart: if any part of a set of pins is missing, the whole set is made again with its links.
func TestPinnedInPart(t *testing.T) {
	dir := pinsAlone(t)
	if dir == "" {
		return
	}
	for _, kept := range [][]string{
		{"sessions"},
		{"flows", "sessions"},
		{"events", "flows"},
		{"events", "flows", "link-1-egress", "link-1-ingress"},
		{"events", "link-1-egress", "link-1-ingress"},
		{"link-1-egress", "link-1-ingress"},
		{"link-1-ingress"},
		{"flows", "sessions", "link-1-egress"},
		{"events", "flows", "sessions"},
		{"events", "flows", "sessions", "link-1-egress"},
		{"events", "flows", "sessions", "link-1-ingress"},
	} {
		crashed(t, dir, "lo")
		for _, name := range names(t, dir) {
			if !slices.Contains(kept, name) {
				unpin(t, filepath.Join(dir, name))
			}
		}
		serves(t, dir, wholePins(1), "lo")
	}
}

func unpin(t *testing.T, path string) {
	t.Helper()
	var err error
	if strings.HasPrefix(filepath.Base(path), "link-") {
		l := must.Get(link.LoadPinnedLink(path, nil))(t)
		err = errors.Join(l.Detach(), l.Close())
	}
	must.Do(t, errors.Join(err, os.Remove(path)))
}
