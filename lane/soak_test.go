package lane_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/lane/lossy"
)

// soakVariable is the environment variable with the number of messages of TestSoak: 10,000,000 take a quarter
// of an hour on two CPUs.
//
//	PENSTOCK_TEST_LANE_SOAK=10000000 go test ./lane -run TestSoak -v -timeout 2h
const soakVariable = "PENSTOCK_TEST_LANE_SOAK"

// soakRate: 1 % of packets are lost, 1 % are doubled, and 1 % are late.
var soakRate = lossy.Rate{Lose: 100, Twice: 100, Late: 100}

// TestSoak: while every second session leaves user space and comes back at random, over a link that
// loses, doubles and delays, no message is wrong, missing or doubled, and nothing is reset.
func TestSoak(t *testing.T) {
	if !alone(t) {
		return
	}
	total, sessions := 10_000, 16
	if n, err := strconv.Atoi(os.Getenv(soakVariable)); err == nil {
		total, sessions = n, 128
	}
	l := open(t, "lo")
	pairs := make([]pair, sessions)
	for i := range pairs {
		pairs[i] = joined(t, l, "tcp", []string{"127.0.0.1:0", "[::1]:0"}[i/2%2])
		_ = errors.Join(pairs[i].client.SetDeadline(time.Time{}), pairs[i].server.SetDeadline(time.Time{}))
	}
	lossyLink(t, "lo", soakRate)
	var messages atomic.Int64
	var all sync.WaitGroup
	begun := time.Now()
	for i, p := range pairs {
		all.Go(func() { p.soak(t, uint64(i), &messages, int64(total)) })
	}
	all.Wait()
	st := l.Stats()
	t.Logf("%d messages in %v, %+v", messages.Load(), time.Since(begun).Round(time.Millisecond), st)
	if st.Reset != 0 || st.Failed != 0 || len(st.Unrestored) != 0 {
		t.Errorf("%+v", st)
	}
}

// soak sends messages both ways until there are enough, while every second session leaves and comes back.
func (p pair) soak(t *testing.T, seed uint64, messages *atomic.Int64, total int64) {
	stop := make(chan struct{})
	var both, away sync.WaitGroup
	var back atomic.Int64
	if seed%2 == 0 {
		away.Go(func() { p.backAndForth(t, seed, &back, stop) })
	} else {
		back.Store(enough)
	}
	both.Go(func() {
		if err := answer(p.server, seed); err != nil {
			t.Errorf("session %d, server: %v", seed, err)
		}
	})
	both.Go(func() {
		defer p.client.CloseWrite()
		rnd := rand.New(rand.NewPCG(seed, 1))
		for first := uint64(0); messages.Load() < total || back.Load() < enough; {
			n := 1 + rnd.Uint64N(8)
			if err := ask(p.client, seed, first, n); err != nil {
				t.Errorf("session %d, client: %v", seed, err)
				return
			}
			first += n
			messages.Add(2 * int64(n))
		}
	})
	both.Wait()
	close(stop)
	away.Wait()
	if _, err := io.ReadFull(p.client, make([]byte, 1)); err != io.EOF {
		t.Errorf("session %d: the client reads %v at the end", seed, err)
	}
	p.Wait()
}

// enough is how often a session must come back.
const enough = 3

// backAndForth makes a session come back and leave at random, and counts how often.
func (p pair) backAndForth(t *testing.T, seed uint64, back *atomic.Int64, stop chan struct{}) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	for {
		pause := time.NewTimer(time.Duration(rnd.IntN(20_000)) * time.Microsecond)
		select {
		case <-stop:
			pause.Stop()
			return
		case <-pause.C:
		}
		if !p.Left() {
			continue
		}
		if err := p.ComeBack(time.Duration(rnd.IntN(3)) * 10 * time.Millisecond); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("session %d: %v", seed, err)
		}
		back.Add(1)
		if rnd.IntN(2) == 0 { // otherwise it stays for a while
			p.MayLeave()
			continue
		}
		time.AfterFunc(time.Duration(rnd.IntN(20_000))*time.Microsecond, p.MayLeave)
	}
}

// message appends message n of a session and a direction: its length, its number, and bytes that depend on the
// seed, the number and the direction.
func message(b []byte, seed, n uint64, back bool) []byte {
	rnd := rand.NewPCG(seed<<1|uint64(btoi(back)), n)
	size := int(rnd.Uint64() % 300)
	if size == 0 {
		size = 9000
	}
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	b = binary.BigEndian.AppendUint64(b, n)
	for range size {
		b = append(b, byte(rnd.Uint64()))
	}
	return b
}

// ask sends several messages at once, and expects the answer to each.
func ask(c *net.TCPConn, seed, first, n uint64) error {
	var out, want []byte
	for i := first; i < first+n; i++ {
		out, want = message(out, seed, i, false), message(want, seed, i, true)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(out)
		sent <- err
	}()
	got := make([]byte, len(want))
	at, err := io.ReadFull(c, got)
	if err = errors.Join(err, <-sent); err != nil {
		return fmt.Errorf("messages from %d on, at byte %d: %w", first, at, err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("messages from %d on are not the right ones", first)
	}
	return nil
}

// answer expects the messages of a session one after another, and answers each, until the end of file.
func answer(c *net.TCPConn, seed uint64) error {
	defer c.Close()
	b := make([]byte, 1<<16)
	var held, want, back []byte
	for next := uint64(0); ; {
		n, err := c.Read(b)
		if err == io.EOF && len(held) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		held, back = append(held, b[:n]...), back[:0]
		for {
			if want = message(want[:0], seed, next, false); len(held) < len(want) {
				break
			}
			if !bytes.HasPrefix(held, want) {
				return fmt.Errorf("message %d is not the right one", next)
			}
			held, back = held[len(want):], message(back, seed, next, true)
			next++
		}
		if _, err := c.Write(back); err != nil {
			return err
		}
	}
}
