//go:build linux

package soak_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

// childName is the first argument of this test's program when it is a toy proxy.
const childName = "penstock-soak-test"

// The faults of a toy proxy.
const (
	faithful     = "faithful"
	losesAByte   = "loses a byte"
	swapsABit    = "swaps a bit"
	endsResets   = "turns resets into ends of file"
	leaks        = "leaks a descriptor"
	hides        = "counts a byte too few"
	invents      = "loses bytes that were never there"
	dropsUrgent  = "takes urgent bytes out of the stream"
	keepsEnds    = "keeps ends of file to itself"
	resetsAll    = "resets what has ended in order"
	forgets      = "never says that a connection is over"
	endsBadly    = "ends with exit status 3"
	dies         = "dies"
	lastByteLate = "ends before the last byte"
)

// toy is a proxy, which answers for its status alone.
type toy struct {
	fault  string
	target string
	n      atomic.Int64 // connections
	mu     sync.Mutex
	sum    admin.Summary
}

// serve runs a toy, whose fault is the first argument. The flags are those of `penstock proxy`,
// in the order in which start gives them.
func serve(args []string) error {
	fault, args := args[0], args[2:]
	// One thread may get the signal after another one has seen the end of stdin: so the signal
	// stays caught until the end.
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	t := &toy{fault: fault, target: args[3]}
	l, err := (&net.ListenConfig{Control: t.inline}).Listen(ctx, "tcp4", args[1])
	if err != nil {
		return err
	}
	s := admin.New(admin.Config{Balancer: &balancer{summary: t.summary}, Reloader: reloader{}})
	move, err := s.Prepare(ctx, admin.Access{Bind: args[7]})
	if err != nil {
		return err
	}
	move.Commit()
	go t.accept(l)
	fmt.Fprintf(os.Stderr, "{\"msg\":\"listening\",\"address\":%q}\n", l.Addr())
	<-ctx.Done()
	if fault == endsBadly {
		os.Exit(3)
	}
	return nil
}

func (t *toy) inline(_, _ string, c syscall.RawConn) error {
	if t.fault == dropsUrgent {
		return nil
	}
	return options{}.set("", "", c)
}

func (t *toy) summary() admin.Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum
}

func (t *toy) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go t.join(c.(*net.TCPConn), t.n.Add(1))
	}
}

// join is one session.
func (t *toy) join(a *net.TCPConn, n int64) {
	defer a.Close()
	t.note(func() { t.sum.Connections.Accepted++; t.sum.Connections.Active++ })
	defer t.note(func() {
		if t.fault != forgets || n != 10 {
			t.sum.Connections.Active--
		}
	})
	c, err := (&net.Dialer{Control: t.inline}).Dial("tcp4", t.target)
	if err != nil {
		return
	}
	b := c.(*net.TCPConn)
	defer b.Close()
	s := &session{toy: t, a: a, b: b, n: n}
	var both sync.WaitGroup
	both.Go(func() { s.pass(a, b, &t.sum.Bytes.ClientToEndpoint.Copied, 0) })
	both.Go(func() { s.pass(b, a, &t.sum.Bytes.EndpointToClient.Copied, 1) })
	both.Wait()
	switch {
	case t.fault == leaks && n == 3:
		_, _ = syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0) // that of a may be gone by now
	case t.fault == dies && n == 10:
		panic("a toy that is broken")
	}
	if s.broken.Load() && t.fault != endsResets {
		_ = a.SetLinger(0)
		_ = b.SetLinger(0)
	}
}

func (t *toy) note(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// control2 is control with an error result.
func control2(c *net.TCPConn, f func(fd int)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

// session is two joined connections.
type session struct {
	*toy
	a, b   *net.TCPConn
	n      int64
	shut   [2]atomic.Bool // shut for writing: b, and a
	broken atomic.Bool
}

// pass moves one direction.
func (s *session) pass(from, to *net.TCPConn, moved *int64, d int) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		b := s.spoil(buf[:n], d)
		w, failed := to.Write(b)
		s.note(func() { *moved += int64(s.counted(w, d)) })
		if err == nil && failed == nil {
			continue
		}
		if failed != nil || !errors.Is(err, io.EOF) || s.collected(from, 1-d) || s.fault == resetsAll && s.n%8 == 0 {
			s.breakOff()
			return
		}
		s.shut[d].Store(true)
		if s.fault != keepsEnds {
			_ = to.CloseWrite()
		}
		return
	}
}

// collected: see end.collected. Its own end of file is that of the other direction.
func (s *session) collected(from *net.TCPConn, d int) bool {
	var state uint8
	_ = control2(from, func(fd int) { state, _ = sys.TCPState(fd) })
	return state == sys.TCP_CLOSE && !s.shut[d].Load()
}

// breakOff ends both directions.
func (s *session) breakOff() {
	s.broken.Store(true)
	for _, c := range []*net.TCPConn{s.a, s.b} {
		_ = c.SetDeadline(time.Unix(1, 0))
	}
}

// spoil corrupts bytes.
func (s *session) spoil(b []byte, d int) []byte {
	if len(b) < 2 || s.n%8 != 0 {
		return b
	}
	switch {
	case s.fault == losesAByte && d == 1, s.fault == lastByteLate:
		return b[:len(b)-1]
	case s.fault == swapsABit && d == 0 && len(b) > greeting:
		b[len(b)-1] ^= 1
	}
	return b
}

// counted returns the reported number of bytes moved.
func (s *session) counted(n, d int) int {
	switch {
	case n > 0 && s.fault == hides && s.n%8 == 0 && d == 0:
		return n - 1
	case s.fault == invents && s.n == 8:
		s.sum.Lost = 1 << 40
	}
	return n
}

// A balancer has a summary, and nothing else that could be asked for.
type balancer struct {
	admin.Balancer
	summary func() admin.Summary
}

func (b *balancer) Status() admin.Status {
	return admin.Status{State: admin.Serving, Summary: b.summary()}
}

// A reloader has one generation.
type reloader struct{ admin.Reloader }

func (reloader) Generations() rollback.Status { return rollback.Status{Current: 1} }

// toySoak is a soak of a toy with a fault.
func toySoak(fault string) config {
	return config{
		command: []string{privilege.Self, fault}, duration: 3 * time.Second, round: 1500 * time.Millisecond, longest: 100 * time.Millisecond,
		connections: 8, seed: 4, patience: 10 * time.Second,
	}
}

// TestFaultsAreSeen: a proxy with a fault is told from one without.
func TestFaultsAreSeen(t *testing.T) {
	full.Only(t, "a soak for each fault")
	turns := make(chan struct{}, 2) // each is work for a CPU
	for fault, want := range map[string]string{
		faithful:     "",
		losesAByte:   "client: expected",
		swapsABit:    "server: expected the bytes that the client had sent, got others",
		endsResets:   "expected a reset, which the ",
		leaks:        "descriptors of the proxy, socket: expected 2, got 3",
		hides:        "summary: client to endpoint: expected",
		invents:      "summary: lost: expected at most",
		dropsUrgent:  "expected the bytes that the ",
		keepsEnds:    ", got nothing for 2",
		resetsAll:    "expected no reset, got one",
		forgets:      "still holds 1 connections",
		endsBadly:    "expected exit status 0 after SIGTERM with no connection, got",
		dies:         "the proxy: expected to run, got",
		lastByteLate: "expected",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			defer func() { <-turns }()
			cfg := toySoak(fault)
			cfg.settling = time.Second
			if fault == keepsEnds {
				cfg.patience = 2 * time.Second
			}
			v := run(t, cfg).violations
			if want == "" && len(v) > 0 || want != "" && !slices.ContainsFunc(v, func(v string) bool { return strings.Contains(v, want) }) {
				t.Errorf("got %q, want %q", v, want)
			}
		})
	}
}
