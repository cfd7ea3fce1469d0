package lane_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/lane"
)

// An exchange is bytes both ways on a session that has left user space, and their ends, as in bench/contestant.
type exchange struct {
	up, down               int
	first                  first
	slowClient, slowServer bool
}

// first is the side that ends first; the other one sends after that.
type first int

const (
	together first = iota
	clientFirst
	serverFirst
)

// TestChecks makes the 19 checks of TestCorrectness (bench/contestant), by which every proxy is judged, on sessions that have left user space.
func TestChecks(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for _, n := range []int{0, 1, 4095, 4097, 65535, 65537, 1<<20 + 1, 8<<20 - 1} {
		t.Run(fmt.Sprintf("%d bytes each way", n), exchange{up: n, down: n}.check(l))
	}
	for name, x := range map[string]exchange{
		"the client ends first":                   {up: 100_003, down: 3<<20 + 7, first: clientFirst},
		"the server ends first":                   {up: 3<<20 + 7, down: 100_003, first: serverFirst},
		"the client ends first and sends nothing": {down: 65_537, first: clientFirst},
		"the server ends first and sends nothing": {up: 65_537, first: serverFirst},
		"a slow client":                           {up: 1000, down: 6<<20 + 1, slowClient: true},
		"a slow server":                           {up: 6<<20 + 1, down: 1000, slowServer: true},
	} {
		t.Run(name, x.check(l))
	}
	t.Run("the server answers and closes", func(t *testing.T) {
		p := gone(t, l)
		p.exchange(t, make([]byte, 3000), p.client, p.server)
		p.exchange(t, make([]byte, 3000), p.server, p.client)
		p.server.Close()
		if n, err := p.client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the answer: %d, %v", n, err)
		}
		p.client.Close()
		p.Wait()
	})
	for name, reset := range map[string]func(p pair) (by, other *net.TCPConn){
		"a reset by the client": func(p pair) (by, other *net.TCPConn) { return p.client, p.server },
		"a reset by the server": func(p pair) (by, other *net.TCPConn) { return p.server, p.client },
	} {
		t.Run(name, func(t *testing.T) {
			p := gone(t, l)
			by, other := reset(p)
			if err := errors.Join(by.SetLinger(0), by.Close()); err != nil {
				t.Error(err)
			}
			wantReset(t, "the other end", other)
			p.Wait()
		})
	}
	t.Run("a client that vanishes from a download", func(t *testing.T) { vanishes(t, gone(t, l)) })
	t.Run("200 connections at once", func(t *testing.T) { atOnce(t, l, 200) })
	if st := l.Stats(); st.Left != 14+1+2+1+200 || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
}

// gone returns a session that has left user space.
func gone(t testing.TB, l *lane.Lane) pair {
	t.Helper()
	p := joined(t, l, "tcp", "127.0.0.1:0")
	p.talk(t)
	return p
}

// vanishes has the client reset the session while it downloads more than buffers hold: its end is behind much that is unread.
func vanishes(t *testing.T, p pair) {
	failed := make(chan error, 1)
	go func() {
		for b := make([]byte, 1<<16); ; {
			if _, err := p.server.Write(b); err != nil {
				failed <- err
				return
			}
		}
	}()
	if _, err := io.ReadFull(p.client, make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(p.client.SetLinger(0), p.client.Close()); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the server: %v, want a reset", err)
	}
	p.Wait()
}

// atOnce makes that many exchanges at once, each with contents and a length of its own.
func atOnce(t *testing.T, l *lane.Lane, n int) {
	pairs := make([]pair, n)
	for i := range pairs {
		pairs[i] = gone(t, l)
	}
	var all sync.WaitGroup
	for i, p := range pairs {
		limited(t, p.client, p.server)
		all.Go(func() { exchange{up: 40_000 + i, down: 60_000 - i}.run(t, p, byte(i)) })
	}
	all.Wait()
}

func (x exchange) check(l *lane.Lane) func(*testing.T) {
	return func(t *testing.T) { x.run(t, gone(t, l), 1) }
}

// run sends the bytes, compares what arrives, and what is counted.
func (x exchange) run(t *testing.T, p pair, seed byte) {
	report := func(side string, err error) {
		if err != nil {
			t.Errorf("%s: %v", side, err)
		}
	}
	up := func() { report("client", upload(p.client, x.up, seed)) }
	down := func() { report("client", download(p.client, x.down, seed+1, x.slowClient)) }
	serverUp := func() { report("server", upload(p.server, x.down, seed+1)) }
	serverDown := func() { report("server", download(p.server, x.up, seed, x.slowServer)) }
	client, server := [2]func(){up, down}, [2]func(){serverUp, serverDown}
	switch x.first {
	case clientFirst:
		server = [2]func(){serverDown, serverUp}
	case serverFirst:
		client = [2]func(){down, up}
	}
	var ends sync.WaitGroup
	for _, side := range [2][2]func(){client, server} {
		if x.first == together {
			ends.Go(side[0])
			ends.Go(side[1])
			continue
		}
		ends.Go(func() { side[0](); side[1]() })
	}
	ends.Wait()
	p.Wait()
	if got, want := p.Bytes(), [2]uint64{p.sent[0] + uint64(x.up), p.sent[1] + uint64(x.down)}; got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// upload sends n bytes and the end of file.
func upload(c *net.TCPConn, n int, seed byte) error {
	b := make([]byte, n)
	(&stream{seed: seed}).fill(b)
	if _, err := c.Write(b); err != nil {
		return err
	}
	return c.CloseWrite()
}

// download expects these n bytes, and the end of file; one that is slow has a small buffer, and pauses after each piece.
func download(c *net.TCPConn, n int, seed byte, slow bool) error {
	want, got, size := make([]byte, n), make([]byte, 0, n), 1<<20
	(&stream{seed: seed}).fill(want)
	if slow {
		size = 32 << 10
		if err := c.SetReadBuffer(128 << 10); err != nil {
			return err
		}
	}
	for b := make([]byte, size); ; {
		m, err := c.Read(b)
		got = append(got, b[:m]...)
		switch {
		case err == io.EOF && bytes.Equal(got, want):
			return nil
		case err != nil:
			return fmt.Errorf("%d of %d bytes, equal so far: %v: %w", len(got), n, bytes.HasPrefix(want, got), err)
		}
		if slow {
			time.Sleep(time.Millisecond) // it is slow: nothing is waited for
		}
	}
}
