package relay_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

func init() { helpers["messages"] = helperMessages }

// tracedLegs is the environment variable that has the traced process ask for the legs of its session.
const tracedLegs = "RELAY_TEST_LEGS"

// tracedMessages is how many requests and replies the traced process passes.
const tracedMessages = 500

// helperMessages passes requests and replies of 64 B through a session on a loop, and
// then ends both sides with a last message, so that the last bytes and the end of file
// are told of in one event. Its own far ends use read(2) and write(2), the session
// recv and send, so the two can be told apart in a trace.
func helperMessages() {
	cfg := &relay.Config{}
	if os.Getenv(tracedLegs) != "" {
		cfg.LegsAfter = 1
	}
	r, err := relay.New(cfg)
	succeed(err)
	l, err := loop.New(nil)
	succeed(err)
	mem, err := arena.New(&arena.Config{Locals: 1})
	succeed(err)
	d, err := r.NewDriver(l, mem.Local(0))
	succeed(err)
	ran := make(chan struct{})
	go func() { succeed(l.Run()); close(ran) }()
	t := &mustTB{}
	A, nearA := sockets.TCPPair(t)
	nearB, B := sockets.TCPPair(t)
	s := &loopSession{ended: func(res relay.Result, err error) { fmt.Println(res.Reason, err); l.Stop() }}
	socks := [2]relay.Socket{takeFor(nearA), takeFor(nearB)}
	start := func() {
		for i := range socks {
			socks[i].ID, err = l.Add(socks[i].FD, uint8(i), &s.driven)
			succeed(err)
		}
		d.Start(&s.driven, socks[0], socks[1], s)
	}
	succeed(l.Post(start))
	for i := range tracedMessages {
		succeed(ping64(A, B, byte(i)))
		succeed(ping64(B, A, byte(i)))
	}
	last := func(from, to *net.TCPConn) {
		done := make(chan struct{})
		succeed(l.Post(func() { // the loop sees what is sent meanwhile at once
			_, err := from.Write(make([]byte, 64))
			succeed(err)
			succeed(from.CloseWrite())
			close(done)
		}))
		<-done
		succeed(expect(to, make([]byte, 64)))
	}
	last(A, B)
	last(B, A)
	<-ran
}

// mustTB is what makes pairs of sockets outside of a test.
type mustTB struct{ testing.TB }

func (*mustTB) Helper()           {}
func (*mustTB) Cleanup(func())    {}
func (*mustTB) Fatal(args ...any) { succeed(fmt.Errorf("%v", args)) }

func takeFor(c *net.TCPConn) relay.Socket {
	fd, err := loop.Take(c)
	succeed(err)
	return relay.Socket{FD: fd, TCP: true}
}

func ping64(from, to net.Conn, b byte) error {
	message := make([]byte, 64)
	message[0] = b
	if _, err := from.Write(message); err != nil {
		return err
	}
	for left := message; len(left) > 0; {
		n, err := to.Read(left)
		if err != nil {
			return err
		}
		left = left[n:]
	}
	return nil
}

// TestCallsPerMessage: a message takes one recv and one send, and an end of file that
// was told of together with the last bytes takes no recv that returns 0.
func TestCallsPerMessage(t *testing.T) {
	t.Parallel()

	count := traced(t)
	const messages = 2*tracedMessages + 2
	recvs, sends := count(`recvfrom.* = 64$`), count(`sendto\(`)
	if recvs != messages || sends != messages {
		t.Errorf("%d recvs and %d sends for %d messages", recvs, sends, messages)
	}
	// An edge that says only that there is room again costs nothing, and neither does one that says nothing new. A recv
	// in vain is rare, and depends on when the kernel tells of an edge.
	if n := count(`recvfrom.* EAGAIN`); n > messages/20 {
		t.Errorf("%d of %d recvs in vain", n, count(`recvfrom\(`))
	}
	if n := count(`recvfrom.* = 0$`); n != 0 {
		t.Errorf("%d recvs returned 0", n)
	}
	if n := count(`splice\(`); n != 0 {
		t.Errorf("%d splices", n)
	}
	if n := count(tcpInfo); n != 0 {
		t.Errorf("%d times TCP_INFO without being asked", n)
	}
}

// tcpInfo is a system call that reads the account of a connection.
const tcpInfo = `getsockopt\(.*TCP_INFO`

// TestCallsForLegs: the legs of a session cost a system call each, at its end.
func TestCallsForLegs(t *testing.T) {
	t.Parallel()

	if n := traced(t, tracedLegs+"=yes")(tcpInfo); n != 2 {
		t.Errorf("%d times TCP_INFO, want 2", n)
	}
}

// traced runs helperMessages, and returns a function that counts its system calls that match.
func traced(t *testing.T, env ...string) (count func(pattern string) int) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("counts system calls with strace: %v", err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-qq", "-e", "trace=recvfrom,sendto,splice,getsockopt", "-o", trace, "/proc/self/exe")
	cmd.Path = strace
	self := must.Get(os.Executable())(t)
	cmd.Args[len(cmd.Args)-1] = self
	cmd.Env = append(append(os.Environ(), "RELAY_TEST_HELPER=messages"), env...)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "ptrace") {
		t.Skipf("may not trace: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "eof <nil>") {
		t.Fatalf("%v: %s", err, out)
	}
	calls := must.Get(os.ReadFile(trace))(t)
	return func(pattern string) int {
		return len(regexp.MustCompile("(?m)"+pattern).FindAll(calls, -1))
	}
}
