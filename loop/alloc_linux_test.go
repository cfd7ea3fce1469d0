package loop_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

func allocates(t *testing.T, what string, f func()) {
	t.Helper()
	f() // what is made once
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s allocates %v times", what, n)
	}
}

type idle struct{ l *loop.Loop }

func (idle) Ready(uint8, loop.Events) {}
func (idle) Expired(*loop.Timer)      {}

// TestNothingAllocates of what a loop does for each event, timer, post or
// connection.
func TestNothingAllocates(t *testing.T) {
	c := clock{now: 1}
	l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
	fd, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	id := add(t, l, fd, 0, idle{l})
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	allocates(t, "an event", func() {
		_, _ = sys.Write(fd, one)
		_ = l.Turn()
	})
	allocates(t, "Again", func() {
		l.Again(id)
		_ = l.Turn()
	})
	allocates(t, "adding", func() {
		_ = l.Detach(id)
		id, _ = l.Add(fd, 0, idle{l})
	})
	var timer loop.Timer
	allocates(t, "a timer", func() {
		l.Arm(&timer, idle{l}, time.Millisecond)
		c.now += 3e6
		_ = l.Turn()
	})
	allocates(t, "a timer that is disarmed", func() {
		l.Arm(&timer, idle{l}, time.Minute)
		l.Disarm(&timer)
	})
	nothing := func() {}
	allocates(t, "a post", func() {
		_ = l.Post(nothing)
		_ = l.Turn()
	})
}

type closer struct{ n int }

func (c *closer) Accepted(fd int, _ netip.AddrPort) { c.n++; sys.Close(fd) }
func (c *closer) Paused(error)                      {}

type keeper struct{ fd int }

func (k *keeper) Connected(_ *loop.Dial, fd int, _ loop.ID, _ loop.Events, _ error) { k.fd = fd }

// TestAcceptAndConnectAllocateNothing.
func TestAcceptAndConnectAllocateNothing(t *testing.T) {
	l := newLoop(t, nil)
	s, fd := socket(t)
	got := &closer{}
	listen(t, l, fd, &loop.ListenerConfig{Acceptor: got})
	to := tcp(s)
	cfg := &loop.DialConfig{Timeout: time.Minute}
	var d loop.Dial
	k := &keeper{}
	want := 0
	allocates(t, "a connection", func() {
		k.fd = -1
		l.Connect(&d, 0, to, cfg, k)
		want++
		for k.fd < 0 || got.n < want {
			_ = l.Turn()
		}
		sys.Close(k.fd)
	})
}
