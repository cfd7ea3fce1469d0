//go:build linux

package soak_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
)

// The requests of the clients below are a byte.
const (
	wantsEcho   = 'e' // of all that follows
	wantsStream = 's' // of contents, until the client ends
	wantsOnce   = 'o' // an echo of onceSize bytes, and the end
)

const (
	onceSize    = 500
	chatSize    = 256
	chatPause   = 20 * time.Millisecond // at most
	abruptSize  = 64 << 10
	oneStep     = 5 * time.Second // of a client
	longestChat = 500 * time.Millisecond
)

func answerKinds(c net.Conn) {
	defer c.Close()
	request := make([]byte, 1)
	if _, err := io.ReadFull(c, request); err != nil {
		return
	}
	switch request[0] {
	case wantsEcho:
		_, _ = io.Copy(c, c)
	case wantsOnce:
		_, _ = io.CopyN(c, c, onceSize)
	case wantsStream:
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, c)
		}()
		for out := newStream(1); ; {
			select {
			case <-ended:
				return
			default:
			}
			if _, err := c.Write(out.Next(maxChunk)); err != nil {
				<-ended
				return
			}
		}
	}
}

// clients are all of them, and what has come of them.
type clients struct {
	address string
	until   time.Time
	mu      sync.Mutex
	done    map[string]int
	failed  []string
	chats   []time.Duration
}

// again has f done as long as the time lasts.
func (c *clients) again(ctx context.Context, kind string, f func(conn *net.TCPConn) error) {
	for ctx.Err() == nil && time.Now().Before(c.until) {
		conn, err := net.DialTimeout("tcp", c.address, oneStep)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(time.Until(c.until) + oneStep))
			err = f(conn.(*net.TCPConn))
			conn.Close()
		}
		c.mu.Lock()
		if c.done[kind]++; err != nil {
			c.failed = append(c.failed, fmt.Sprintf("%s: %v", kind, err))
		}
		c.mu.Unlock()
	}
}

func message(conn net.Conn, b []byte) error {
	if _, err := conn.Write(b); err != nil {
		return err
	}
	back := make([]byte, len(b))
	if _, err := io.ReadFull(conn, back); err != nil {
		return err
	}
	if !bytes.Equal(back, b) {
		return errors.New("other bytes came back")
	}
	return nil
}

// ends wants the end of file, after this side's.
func ends(conn *net.TCPConn) error {
	_ = conn.CloseWrite()
	if n, err := io.Copy(io.Discard, conn); n > 0 || err != nil {
		return fmt.Errorf("waiting for the end: %d bytes, %w", n, err)
	}
	return nil
}

func request(conn net.Conn, kind byte) error {
	_, err := conn.Write([]byte{kind})
	return err
}

// short connects, asks, has the answer, and sees the endpoint close.
func (c *clients) short(conn *net.TCPConn) error {
	if err := errors.Join(request(conn, wantsOnce), message(conn, newStream(rand.Uint32()).Next(onceSize))); err != nil {
		return err
	}
	return ends(conn)
}

// bulk downloads until the time is over.
func (c *clients) bulk(conn *net.TCPConn) error { return c.download(conn, 1<<60) }

// abrupt has some of an endless answer, and resets.
func (c *clients) abrupt(conn *net.TCPConn) error {
	err := c.download(conn, abruptSize)
	_ = conn.SetLinger(0)
	return err
}

func (c *clients) download(conn net.Conn, most int) error {
	if err := request(conn, wantsStream); err != nil {
		return err
	}
	in, b := newStream(1), make([]byte, 32<<10)
	for got := 0; got < most && time.Now().Before(c.until); {
		n, err := conn.Read(b)
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", got, err)
		}
		if got += n; !in.Check(b[:n]) {
			return errors.New("other bytes came than were sent")
		}
	}
	return nil
}

// chat sends small messages with pauses, each of which has a deadline of its own.
func (c *clients) chat(conn *net.TCPConn) error {
	if err := request(conn, wantsEcho); err != nil {
		return err
	}
	for out := newStream(rand.Uint32()); time.Now().Before(c.until); time.Sleep(rand.N(chatPause)) {
		began := time.Now()
		_ = conn.SetDeadline(began.Add(oneStep))
		if err := message(conn, out.Next(chatSize)); err != nil {
			return err
		}
		c.mu.Lock()
		c.chats = append(c.chats, time.Since(began))
		c.mu.Unlock()
	}
	return ends(conn)
}

// rest is quiet, and alive at the end.
func (c *clients) rest(conn *net.TCPConn) error {
	out := newStream(rand.Uint32())
	if err := errors.Join(request(conn, wantsEcho), message(conn, out.Next(chatSize))); err != nil {
		return err
	}
	time.Sleep(time.Until(c.until))
	if err := message(conn, out.Next(chatSize)); err != nil {
		return fmt.Errorf("after it was idle: %w", err)
	}
	return ends(conn)
}

// TestKindsOfClients: short, streaming, chatting, idle and abrupt clients at once, none of whom may fail, and chats may not wait for long.
// Other work of the machine makes them wait as well, so there are four attempts at that.
func TestKindsOfClients(t *testing.T) {
	full.Only(t, "it counts on a machine that does nothing else")
	endpoint := sockets.Server(t, answerKinds)
	s := &soak{config: config{command: program.Build(t)}, origin: &origin{address: endpoint}}
	s.start(t)
	least := time.Hour
	for range 4 {
		if least = min(least, allKinds(t, s.at[0])); least <= longestChat {
			return
		}
	}
	t.Errorf("the 99th percentile of a message is %v, more than %v", least, longestChat)
}

// allKinds has all of them for some seconds, and returns the 99th percentile of a message.
func allKinds(t *testing.T, address string) time.Duration {
	t.Helper()
	c := &clients{address: address, until: time.Now().Add(6 * time.Second), done: make(map[string]int)}
	var all sync.WaitGroup
	for _, k := range []struct {
		name string
		n    int
		f    func(*net.TCPConn) error
	}{{"short", 4, c.short}, {"bulk", 2, c.bulk}, {"chat", 32, c.chat}, {"idle", 200, c.rest}, {"abrupt", 2, c.abrupt}} {
		for range k.n {
			all.Go(func() { c.again(t.Context(), k.name, k.f) })
		}
	}
	all.Wait()
	for _, f := range c.failed {
		t.Error(f)
	}
	if len(c.done) != 5 || len(c.chats) == 0 {
		t.Fatalf("some had no turn: %v", c.done)
	}
	slices.Sort(c.chats)
	p99 := c.chats[len(c.chats)*99/100]
	t.Logf("%v; the 99th percentile of %d messages is %v", c.done, len(c.chats), p99)
	return p99
}
