package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/loop"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestEcho: several clients at once, who send far more than the sockets hold, and read
// it only when nothing more can be sent, or at the same time.
func TestEcho(t *testing.T) {
	g := must.Get(loop.NewGroup(2, nil))(t)
	defer g.Close()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ended := make(chan error, 1)
	go func() { ended <- serve(g, l.(*net.TCPListener)) }()
	var clients sync.WaitGroup
	for size := range 8 {
		clients.Go(func() { client(t, l.Addr().String(), 1<<(3*size)) })
	}
	clients.Wait()
	g.Stop()
	must.Do(t, <-ended)
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
