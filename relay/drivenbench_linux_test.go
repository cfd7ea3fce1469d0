package relay_test

import (
	"net"
	"testing"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// BenchmarkDrivenEcho sends one message and its echo through a session on a loop.
func BenchmarkDrivenEcho(b *testing.B) {
	r := newRelay(b, nil)
	on := newLooped(b, r, &loop.Config{}, &arena.Config{Locals: 1})
	g := &rig{t: b, done: make(chan struct{})}
	far, nearA := sockets.TCPPair(b)
	nearB, echo := sockets.TCPPair(b)
	on.run(g, nearA, nearB, nil)
	go echoAll(echo)
	message := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if err := roundTrip(far, message); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	far.Close()
	if _, err := g.wait(); err != nil {
		b.Fatal(err)
	}
}

func echoAll(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func roundTrip(c net.Conn, message []byte) error {
	if _, err := c.Write(message); err != nil {
		return err
	}
	_, err := c.Read(message)
	return err
}
