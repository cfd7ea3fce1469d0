package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/loop"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestEcho: several clients at once, who send far more than the sockets hold, and read
// it only when nothing more can be sent, or at the same time.
func TestEcho(t *testing.T) {
	g, err := loop.NewGroup(2, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(g, l.(*net.TCPListener)) }()
	var clients sync.WaitGroup
	for size := range 8 {
		clients.Go(func() { client(t, l.Addr().String(), 1<<(3*size)) })
	}
	clients.Wait()
	g.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func client(t *testing.T, address string, size int) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	sent := make([]byte, size)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back, %v; equal: %v", len(got), size, err, bytes.Equal(got, sent))
	}
}
