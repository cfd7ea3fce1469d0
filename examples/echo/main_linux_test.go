package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/penstock/penstock/arena"
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

// BenchmarkRest keeps 64 KiB that a client has not taken, of which it takes 4 KiB at a time: in a slot with a Ring, or by a copy
// of what is left each time, which is the simplest that keeps no more than that.
func BenchmarkRest(b *testing.B) {
	const takes = 4 << 10
	came := make([]byte, arena.MaxSlot)
	b.Run("ring", func(b *testing.B) {
		a, err := arena.New(&arena.Config{Locals: 1})
		if err != nil {
			b.Fatal(err)
		}
		defer a.Close()
		b.ReportAllocs()
		for b.Loop() {
			h, err := a.Local(0).Get(len(came), arena.Residue)
			if err != nil {
				b.Fatal(err)
			}
			var rest arena.Ring
			slot, _ := a.Local(0).Bytes(h) // it is leased
			rest.Write(slot, came)
			for rest.Len() > 0 {
				rest.Discard(takes)
			}
			_ = a.Local(0).Put(h) // likewise
		}
	})
	b.Run("clone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for rest := bytes.Clone(came); len(rest) > 0; {
				rest = bytes.Clone(rest[takes:])
			}
		}
	})
}
