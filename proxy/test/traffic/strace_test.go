package traffic

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/strace"
)

const (
	idleSessions = 50
	bulkSessions = 8
	bulkSize     = 32 << 20
)

// testSystemCalls watches a running proxy with strace: pipes are made seldom,
// splice is called often, and idle sessions hold two descriptors each and no
// pipe.
func testSystemCalls(t *testing.T) {
	p := startProxy(t, startEcho(t), "--engine", "splice")
	bulk(t, p) // fills the pool of pipes
	before := p.settled(t, 0)
	open := p.descriptors(t)

	trace := strace.Attach(t, p.Process.Pid, "pipe", "pipe2", "splice", "read", "write", "recvfrom", "sendto")
	for range idleSessions {
		echo(t, p.dial(t), randomBytes(64<<10)) // stays open, idle
	}
	bulk(t, p)
	after := p.settled(t, idleSessions)
	held, baseline := byKind(p.awaitSockets(t, open, 2*idleSessions)), byKind(open)
	calls := trace.Detach(t)

	if got, want := int64(held["pipe"]-baseline["pipe"]), 2*(after.Pipes.Idle-before.Pipes.Idle); got != want {
		t.Errorf("%d more descriptors of pipes, want %d for the pipes that wait in the pool", got, want)
	}
	checkCalls(t, calls, before, after)
	for kind, n := range held {
		if kind == os.DevNull && n <= baseline[kind]+keptSpares {
			continue
		}
		if kind != "socket" && kind != "pipe" && n != baseline[kind] {
			t.Errorf("%d descriptors of kind %s, %d before the load", n, kind, baseline[kind])
		}
	}
}

// awaitSockets waits until the proxy has the wanted number of sockets that are not among the open
// ones, and returns its descriptors then. The connection of the last status closes a moment after
// its answer.
func (p *proxy) awaitSockets(t *testing.T, open []string, want int) (now []string) {
	t.Helper()
	further := 0
	if !condition.Eventually(func() bool {
		now, further = p.descriptors(t), 0
		for _, link := range now {
			if kindOf(link) == "socket" && !slices.Contains(open, link) {
				further++
			}
		}
		return further == want
	}) {
		t.Fatalf("%d idle sessions hold %d sockets, want exactly two each", idleSessions, further)
	}
	return now
}

// keptSpares is how many descriptors of /dev/null the proxy keeps at most for
// connections to targets, beyond those it needs.
const keptSpares = 4

// checkCalls compares strace's counts with the summary and the design.
func checkCalls(t *testing.T, calls map[string]int, before, after summary) {
	t.Helper()
	t.Logf("system calls: %v", calls)
	made, reused := after.Pipes.Made-before.Pipes.Made, after.Pipes.Reused-before.Pipes.Reused
	spliced := after.spliced() - before.spliced()
	if n := int64(calls["pipe2"] + calls["pipe"]); n != made {
		t.Errorf("%d calls of pipe2, but the summary has %d pipes made", n, made)
	}
	// A flow that fills its pipe again and again asks for a larger one, twice.
	if most := int64(3 * 2 * bulkSessions); made > most || reused == 0 {
		t.Errorf("%d pipes made and %d reused for %d flows of three sizes of pipe", made, reused, 2*bulkSessions)
	}
	// A megabyte is the most that one splice into or out of a pipe can move.
	if n := int64(calls["splice"]); n < 2*spliced>>20 || n < 50*made {
		t.Errorf("splice called %d times for %d bytes and %d pipes made", n, spliced, made)
	}
	if want := int64(bulkSessions * bulkSize * 2 * 8 / 10); spliced < want {
		t.Errorf("%d bytes spliced, want at least %d", spliced, want)
	}
}

// startEcho serves connections that get their bytes back.
func startEcho(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, l, sockets.Echo)
	return l.Addr().String()
}

// dial connects to the proxy until the end of the test.
func (p *proxy) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(2*condition.Patience)))
	return c.(*net.TCPConn)
}

// echo sends b and expects it back.
func echo(t *testing.T, c *net.TCPConn, b []byte) {
	var sending sync.WaitGroup
	sending.Go(func() { c.Write(b) })
	defer sending.Wait()
	sum := sha256.New()
	if _, err := io.CopyN(sum, c, int64(len(b))); err != nil {
		t.Errorf("echo of %d bytes: %v", len(b), err)
		return
	}
	if want := sha256.Sum256(b); !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("echo of %d bytes came back changed", len(b))
	}
}

func bulk(t *testing.T, p *proxy) {
	t.Helper()
	b := randomBytes(bulkSize)
	var flows sync.WaitGroup
	for range bulkSessions {
		c := p.dial(t)
		flows.Go(func() {
			defer c.Close()
			echo(t, c, b)
		})
	}
	flows.Wait()
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// settled waits until the proxy has the given number of sessions and no pipe leased.
func (p *proxy) settled(t *testing.T, sessions int64) (s summary) {
	t.Helper()
	if !condition.Eventually(func() bool {
		s = summary{p.State().Summary}
		return s.Connections.Active == sessions && s.Pipes.Leased == 0
	}) {
		t.Fatalf("the proxy does not settle at %d sessions and no pipe leased: %+v", sessions, s)
	}
	return s
}
