package contestant_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// checkTime is how long a check may take, or something is stuck.
const checkTime = 10 * time.Second

// TestCorrectness makes 19 checks of every contestant: every byte and every end, seen from both sides. A contestant that
// is Penstock, or none, passes all. What others do with a reset is theirs, and is told by -v.
func TestCorrectness(t *testing.T) {
	g := process.NewGroup() // this process is at both ends of a session
	t.Cleanup(g.Close)
	far := &far{at: make(map[uint64]chan *net.TCPConn)}
	upstream := listen(t, g, "127.0.0.1:0")
	sockets.Serve(t, upstream, far.serve)
	s := &contestant.Setting{Group: g, Upstream: upstream.Addr().String(), Dir: sockets.Dir(t), Threads: workers, Patience: forever, Program: self}
	for _, k := range contestant.Kinds() {
		ours := strings.HasPrefix(k.Name, "penstock") || k.Name == "direct"
		if k.Name == contestant.LaneName || k.Name == contestant.RealisticName || !ours && !full.Everything() || k.Available(t.Context(), s) != nil {
			continue // the lane's sessions are those of TestChecks in package lane; the realistic file has a header before the content
		}
		t.Run(k.Name, func(t *testing.T) {
			c := start(t, k.Name, s)
			checks := checks()
			passed := len(checks)
			for _, check := range checks {
				if err := check.run(far, c.Address); err != nil {
					passed--
					t.Logf("%s: %v", check.name, err)
				}
			}
			t.Logf("%d checks of %d pass", passed, len(checks))
			if ours && passed < len(checks) {
				t.Error("a check has failed")
			}
		})
	}
}

// A session is both ends of one, and what is its own among those that there are at once.
type session struct {
	client, server *net.TCPConn
	seed           uint32
}

// A check is a number of sessions at once, and what happens on each.
type check struct {
	name     string
	sessions int
	do       func(s *session) error
}

func (c *check) run(f *far, address string) error {
	errs := make([]error, c.sessions)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			s, hangUp, err := f.open(address)
			if err == nil {
				err = c.do(s)
				hangUp()
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func checks() (all []check) {
	one := func(name string, do func(s *session) error) { all = append(all, check{name, 1, do}) }
	for _, n := range []int{0, 1, 4095, 4097, 65535, 65537, 1<<20 + 1, 8<<20 - 1} {
		one(fmt.Sprintf("%d bytes each way", n), crossing{up: n, down: n}.do)
	}
	one("the client ends first", crossing{up: 100_003, down: 3<<20 + 7, first: client}.do)
	one("the server ends first", crossing{up: 3<<20 + 7, down: 100_003, first: server}.do)
	one("the client ends first and sends nothing", crossing{down: 65_537, first: client}.do)
	one("the server ends first and sends nothing", crossing{up: 65_537, first: server}.do)
	one("the server answers and closes", func(s *session) error {
		if err := s.message(s.client, s.server, 3000); err != nil {
			return err
		}
		if err := s.message(s.server, s.client, 3000); err != nil {
			return err
		}
		_ = s.server.Close()
		return ends(s.client)
	})
	one("a slow client", crossing{up: 1000, down: 6<<20 + 1, slow: client}.do)
	one("a slow server", crossing{up: 6<<20 + 1, down: 1000, slow: server}.do)
	all = append(all, check{"200 connections at once", 200, func(s *session) error {
		return crossing{up: 40_000 + int(s.seed%200), down: 60_000 - int(s.seed%200)}.do(s)
	}})
	one("a reset by the client", func(s *session) error { return s.reset(s.client, s.server) })
	one("a reset by the server", func(s *session) error { return s.reset(s.server, s.client) })
	one("a client that vanishes from a download", func(s *session) error {
		var wrote error
		var sending sync.WaitGroup
		sending.Go(func() {
			for b := make([]byte, 1<<16); wrote == nil; {
				_, wrote = s.server.Write(b)
			}
		})
		_, err := io.ReadFull(s.client, make([]byte, 1<<20))
		abort(s.client)
		sending.Wait()
		if !errors.Is(wrote, syscall.ECONNRESET) && !errors.Is(wrote, syscall.EPIPE) {
			err = errors.Join(err, fmt.Errorf("the server has seen no reset: %w", wrote))
		}
		return err
	})
	return all
}

// message sends n bytes, which have to arrive.
func (s *session) message(from, to *net.TCPConn, n int) error {
	content := bytes.Clone(traffic.NewStream(s.seed).Next(n))
	got := make([]byte, n)
	if _, err := from.Write(content); err != nil {
		return err
	}
	if _, err := io.ReadFull(to, got); err != nil {
		return err
	}
	if !bytes.Equal(got, content) {
		return errContent
	}
	return nil
}

var errContent = errors.New("other bytes have arrived")

// reset has one side reset a quiet session, which the other has to see.
func (s *session) reset(by, other *net.TCPConn) error {
	if err := s.message(other, by, 1000); err != nil {
		return err
	}
	abort(by)
	switch _, err := other.Read(make([]byte, 1)); {
	case errors.Is(err, syscall.ECONNRESET):
		return nil
	case err == io.EOF:
		return errors.New("the reset has reached the other side as an end of file")
	default:
		return fmt.Errorf("the reset has not reached the other side: %w", err)
	}
}

func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func ends(c *net.TCPConn) error {
	if n, err := c.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return fmt.Errorf("in place of the end of file: %d bytes, %w", n, err)
	}
	return nil
}

// A side is one of a session's; the zero side is neither.
type side int

const (
	client side = iota + 1
	server
)

// crossing is bytes both ways, and their ends: both sides at once, or one after it has seen the first's.
type crossing struct {
	up, down    int
	first, slow side
}

func (x crossing) do(s *session) error {
	var sides [2]error
	var both sync.WaitGroup
	run := func(i int, c *net.TCPConn, out, in int, me side) {
		give := func() error { return upload(c, s.seed+uint32(i), out) }
		take := func() error { return download(c, s.seed+uint32(1-i), in, x.slow == me) }
		steps := []func() error{give, take}
		switch x.first {
		case 0:
			var sent sync.WaitGroup
			var err error
			sent.Go(func() { err = give() })
			sides[i] = take()
			sent.Wait()
			sides[i] = errors.Join(sides[i], err)
			return
		case me:
		default:
			steps = []func() error{take, give}
		}
		for _, step := range steps {
			if sides[i] = step(); sides[i] != nil {
				return
			}
		}
	}
	both.Go(func() { run(0, s.client, x.up, x.down, client) })
	both.Go(func() { run(1, s.server, x.down, x.up, server) })
	both.Wait()
	return errors.Join(sides[:]...)
}

func upload(c *net.TCPConn, seed uint32, n int) error {
	for content := traffic.NewStream(seed); n > 0; {
		b := content.Next(n)
		if _, err := c.Write(b); err != nil {
			return fmt.Errorf("%d bytes before the end: %w", n, err)
		}
		n -= len(b)
	}
	return c.CloseWrite()
}

// download expects these n bytes and the end of file. If it is slow it has a small buffer, and pauses after each piece.
func download(c *net.TCPConn, seed uint32, n int, slow bool) error {
	buf := make([]byte, 1<<18)
	if slow {
		buf = buf[:1<<15]
		if err := c.SetReadBuffer(128 << 10); err != nil {
			return err
		}
	}
	for content := traffic.NewStream(seed); n > 0; {
		m, err := c.Read(buf[:min(n, len(buf))])
		if !content.Check(buf[:m]) {
			return errContent
		}
		if n -= m; err != nil {
			return fmt.Errorf("%d bytes before the end: %w", n, err)
		}
		if slow {
			time.Sleep(time.Millisecond)
		}
	}
	return ends(c)
}

// far is where sessions arrive: each begins with a number, by which its two ends find each other.
type far struct {
	mu   sync.Mutex
	last uint64
	at   map[uint64]chan *net.TCPConn // by number; the session is over when it is closed
}

func (f *far) serve(c net.Conn) {
	var number [8]byte
	if _, err := io.ReadFull(c, number[:]); err != nil {
		return
	}
	f.mu.Lock()
	at := f.at[binary.BigEndian.Uint64(number[:])]
	f.mu.Unlock()
	if at != nil {
		at <- c.(*net.TCPConn)
		<-at
	}
}

// open opens a session, and returns how to end it.
func (f *far) open(address string) (*session, func(), error) {
	f.mu.Lock()
	f.last++
	number, at := f.last, make(chan *net.TCPConn)
	f.at[number] = at
	f.mu.Unlock()
	near, err := net.DialTimeout("tcp", address, checkTime)
	if err != nil {
		return nil, nil, err
	}
	if _, err = near.Write(binary.BigEndian.AppendUint64(nil, number)); err == nil {
		select {
		case c := <-at:
			s := &session{near.(*net.TCPConn), c, uint32(number)}
			for _, c := range []net.Conn{s.client, s.server} {
				err = errors.Join(err, c.SetDeadline(time.Now().Add(checkTime)))
			}
			return s, func() { _ = near.Close(); close(at) }, err
		case <-time.After(checkTime):
			err = errors.New("the session has not reached the server")
		}
	}
	_ = near.Close()
	return nil, nil, err
}
