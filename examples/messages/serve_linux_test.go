package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/vecio"
)

func TestMain(m *testing.M) { leak.Main(m) }

var policies = []vecio.Policy{vecio.Latency, vecio.Batch, vecio.Adaptive}

// A fixture is a server with so many slots, for two loops.
type fixture struct {
	address string
	servers []*server
}

// start starts one, and ends it with the test: then all slots are back.
func start(t *testing.T, slots int64, policy vecio.Policy) *fixture {
	t.Helper()
	g, err := loop.NewGroup(2, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := arena.New(&arena.Config{Locals: 2, Size: slots * slot})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{l.Addr().String(), newServers(g, a, policy)}
	ended := make(chan error, 1)
	go func() { ended <- serve(g, l.(*net.TCPListener), f.servers) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for i := range a.Locals() {
			a.Local(i).Flush()
		}
		if s := a.Stats(); s.ByPurpose[arena.Read].Out != 0 || s.Stale != 0 {
			t.Errorf("%d slots are out, %d were stale", s.ByPurpose[arena.Read].Out, s.Stale)
		}
		g.Close()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// each calls look for every connection, on its loop.
func (f *fixture) each(t *testing.T, look func(c *conn)) {
	t.Helper()
	for _, s := range f.servers {
		done := make(chan struct{})
		if err := s.loop.Post(func() {
			for c := range s.conns {
				look(c)
			}
			close(done)
		}); err != nil {
			t.Fatal(err)
		}
		<-done
	}
}

func encode(to, payload []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(payload)))
	return append(to, payload...)
}

// answered is what comes back for a payload.
func answered(payload []byte) []byte {
	sum := crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli))
	return encode(nil, binary.BigEndian.AppendUint32(bytes.Clone(payload), sum))
}

func send(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d of %d bytes, %v; equal: %v", n, len(want), err, bytes.Equal(got, want))
	}
}
