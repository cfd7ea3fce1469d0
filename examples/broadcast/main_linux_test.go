package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/loop"
)

func TestMain(m *testing.M) { leak.Main(m) }

// join connects a client, who has a word for everybody, and waits until the first
// of all clients has heard it: then it is one of them.
func join(t *testing.T, address string, first net.Conn) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(condition.Patience)); err != nil {
		t.Fatal(err)
	}
	say(t, c, "hello")
	hear(t, c, "hello")
	if first != nil {
		hear(t, first, "hello")
	}
	return c
}

func say(t *testing.T, c net.Conn, what string) {
	t.Helper()
	if _, err := io.WriteString(c, what); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, what string) {
	t.Helper()
	b := make([]byte, len(what))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != what {
		t.Fatalf("heard %.40q, %v, want %.40q", b, err, what)
	}
}

// TestBroadcast: everybody hears everything, in order, except for one who does not
// read: who is dropped, and keeps nobody waiting.
func TestBroadcast(t *testing.T) {
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := from.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- serve(l, from.(*net.TCPListener)) }()

	speaker := join(t, address, nil)
	listener := join(t, address, speaker)
	slow := join(t, address, speaker)
	hear(t, listener, "hello")

	message := strings.Repeat("0123456789abcdef", 4096) // 64 KiB
	for range 512 {                                     // more than the sockets hold
		say(t, speaker, message)
		hear(t, speaker, message)
		hear(t, listener, message)
	}
	heard, err := io.Copy(io.Discard, slow)
	if heard >= 512*int64(len(message)) {
		t.Errorf("the slow reader has not been dropped: %v", err)
	}
	for _, c := range []net.Conn{speaker, listener} { // they leave, and the server sees that
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Error(err)
		}
	}
	l.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
