package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

func TestMain(m *testing.M) { leak.Main(m) }

// join connects a client, who has a word for everybody, and waits until the first
// of all clients has heard it: then it is one of them.
func join(t *testing.T, address string, first net.Conn) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("tcp", address))(t)
	t.Cleanup(func() { c.Close() })
	must.Do(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	say(t, c, "hello")
	sockets.Expect(t, c, "hello")
	if first != nil {
		sockets.Expect(t, first, "hello")
	}
	return c
}

func say(t *testing.T, c net.Conn, what string) {
	t.Helper()
	must.Get(io.WriteString(c, what))(t)
}

// TestBroadcast: everybody hears everything, in order, except for one who does not
// read: who is dropped, and keeps nobody waiting.
func TestBroadcast(t *testing.T) {
	l := must.Get(loop.New(nil))(t)
	defer l.Close()
	from := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := from.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- serve(l, from.(*net.TCPListener)) }()

	speaker := join(t, address, nil)
	listener := join(t, address, speaker)
	slow := join(t, address, speaker)
	sockets.Expect(t, listener, "hello")

	message := strings.Repeat("0123456789abcdef", 4096) // 64 KiB
	for range 512 {                                     // more than the sockets hold
		say(t, speaker, message)
		sockets.Expect(t, speaker, message)
		sockets.Expect(t, listener, message)
	}
	heard, err := io.Copy(io.Discard, slow)
	if heard >= 512*int64(len(message)) {
		t.Errorf("the slow reader has not been dropped: %v", err)
	}
	for _, c := range []net.Conn{speaker, listener} { // they leave, and the server sees that
		must.Do(t, c.(*net.TCPConn).CloseWrite())
		must.Get(io.Copy(io.Discard, c))(t)
	}
	l.Stop()
	must.Do(t, <-ended)
}
