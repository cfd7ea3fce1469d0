package lane_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// asVictim is the environment variable that makes a process a proxy that will be killed: its
// target and the directory of its pins.
const asVictim = "PENSTOCK_TEST_LANE_VICTIM"

// diesReturning ends the pins of a victim that dies while a session comes back.
const diesReturning = " dies"

// victim is a proxy until it is killed, if this process was started for that. It prints its
// address, and how many sessions have left user space whenever that changes.
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
	err := sys.InterfaceUp("lo") // of a network namespace that is new
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

// startProxyIn starts a proxy in new namespaces of these kinds.
func startProxyIn(t *testing.T, target, pin string, namespaces uintptr) *proxy {
	t.Helper()
	cmd := exec.Command(privilege.Self, "-test.run=^$")
	cmd.Env = append(os.Environ(), asVictim+"="+target+" "+pin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: namespaces}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
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

// talkers connects clients, which talk until that many sessions have left user space.
func (p *proxy) talkers(t *testing.T, n int) (clients []*net.TCPConn) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
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
	if _, err := io.WriteString(c, message); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(message))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != message {
		t.Fatalf("%q: %q, %v", message, b, err)
	}
}

// filesystem mounts a BPF file system in a mount namespace of the test.
func filesystem(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		t.Fatal("bpffs:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	pins := dir + "/lane"
	if err := os.Mkdir(pins, 0o700); err != nil {
		t.Fatal(err)
	}
	return pins
}

// aloneWithMounts is alone with a mount namespace.
func aloneWithMounts(t *testing.T) bool {
	t.Helper()
	permitted(t)
	if !privilege.NetworkAndMounts(t) {
		return false
	}
	if err := sys.InterfaceUp("lo"); err != nil {
		t.Fatal(err)
	}
	return true
}

// TestKilled: sessions of a lane that is pinned survive SIGKILL of the proxy, and the next process
// adopts them, counts on, and ends them.
func TestKilled(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	p := startProxy(t, sockets.Server(t, sockets.Echo), dir)
	// One session is never in the lane, but armed with the first of the others.
	silent, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_ = silent.SetDeadline(time.Now().Add(patience))
	const sessions = 20
	clients := p.talkers(t, sessions)
	if _, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}); !errors.Is(err, lane.ErrBusy) {
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
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Linger: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if st := l.Stats(); st.Adopted != sessions || st.Lane != sessions || len(l.Sessions()) != sessions || st.Failed != 0 {
		t.Errorf("%+v, %d sessions", st, len(l.Sessions()))
	}
	renewed(clients) // to open the lane may have taken as long
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
	if b, err := io.ReadAll(clients[0]); err != nil || len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
	until(t, "the ended session is gone", func() bool { return len(l.Sessions()) == sessions-1 })
	if err := l.Leave(); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients[1:] {
		echo(t, c, "left alone")
	}
	if l, err = lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}); err != nil {
		t.Fatal(err)
	}
	renewed(clients)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients[1:] {
		wantReset(t, "client", c)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("pinned after Close: %v, %v", left, err)
	}
}

// renewed gives connections their deadline anew.
func renewed(clients []*net.TCPConn) {
	for _, c := range clients {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
}

// comeBackAdopted has adopted sessions come back, and leave again.
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
	until(t, "they leave again", func() bool {
		for _, c := range clients {
			echo(t, c, "once more")
		}
		return l.Stats().Lane == len(clients)
	})
}

// TestKilledReturning: a process dies while a session comes back, and the next one has it in the lane again, and come back.
func TestKilledReturning(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	p := startProxy(t, sockets.Server(t, sockets.Echo), dir+diesReturning)
	dialed, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	c := dialed.(*net.TCPConn)
	_ = c.SetDeadline(time.Now().Add(patience))
	echo(t, c, "device of both sides")
	died := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, p.out)
		close(died)
	}()
	missing, b := 0, make([]byte, 100)
	until(t, "the session leaves, is stopped, and the process dies", func() bool {
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
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir, Linger: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(c, make([]byte, missing)); err != nil {
		t.Fatal(missing, "bytes:", err)
	}
	echo(t, c, "it goes on")
	s := l.Sessions()[0]
	if st := l.Stats(); st.Adopted != 1 || st.Returned != 0 || st.Reset != 0 || !s.Left() {
		t.Errorf("%+v, in the lane: %v", st, s.Left())
	}
	if err := s.ComeBack(0); err != nil { // it stays in user space
		t.Fatal(err)
	}
	moves(t, "adopted", s, func() { echo(t, c, "so it is not idle") })
}

// moves has bytes move in user space, and wants the session to be idle from then on.
func moves(t *testing.T, name string, s *lane.Session, move func()) {
	t.Helper()
	before := time.Now()
	move()
	until(t, "bytes that were moved count for Idle of the "+name+" session", func() bool {
		at := time.Now() // before Idle: it counts from that, less Idle, or from later
		return !at.Add(-s.Idle()).Before(before)
	})
}

// TestKilledUnpinned: sessions of a lane that is not pinned end by a reset when the proxy is
// killed, as soon as an endpoint sends something.
func TestKilledUnpinned(t *testing.T) {
	t.Parallel()

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
