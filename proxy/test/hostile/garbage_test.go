package hostile_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestGarbage: a client whose first bytes are garbage is reset at once, and counted by reason.
func TestGarbage(t *testing.T) {
	r := start(t, fmt.Sprintf(looking, echo(t), "20s"))
	hello := helloOf(t, "a.test")
	h := serveHonest(t, r.At("hello"), hello)
	with := func(b []byte, at int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], v)
		return b
	}
	others := [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n"), {0}, bytes.Repeat([]byte{0xff}, 64<<10)} // no TLS
	hellos := [][]byte{
		{21, 3, 1, 0, 2, 1, 90, 22}, with(hello, 1, 2), // a warning before it, a version that there is not
		with(hello, 3, 0xff, 0xff), with(hello, 3, 0, 0), // a record of 64 KiB, an empty record
		with(hello, 6, 0xff, 0xff, 0xff), with(hello, 6, 0, 0, 1), // a ClientHello of 16 MiB, one of a byte
		with(hello, 5, 2), with(hello, 43, 0xff), with(hello, 44+32, 0xff, 0xff), // no ClientHello; lengths inside that exceed it
	}
	headers := [][]byte{
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		{0},
		hello,
		[]byte("PROXY TCP4 1.2.3.4 5.6.7.8 1 70000\r\n"), []byte("PROXY TCP4 ::1 5.6.7.8 1 2\r\n"), []byte("PROXY \r\n"),
		append([]byte("PROXY UNKNOWN "), bytes.Repeat([]byte("x"), 200)...),
		with(version2(1, 0x11, make([]byte, 12)), 14, 0xff, 0xff), // a length of 64 KiB
		version2(1, 0x11, make([]byte, 11)), version2(2, 0x11, make([]byte, 12)), with(header2, 12, 0x31),
		version2(1, 0x11, append(make([]byte, 12), 3, 0xff, 0xff)),       // a TLV that exceeds the header
		version2(1, 0x11, append(make([]byte, 12), 3, 0, 4, 1, 2, 3, 4)), // a wrong checksum
	}
	const times = 20
	var beside sync.WaitGroup
	try := func(address string, sent []byte) {
		beside.Go(func() {
			for range times {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = c.Write(sent) // of much garbage only a part, before the reset
				_ = c.SetDeadline(time.Now().Add(10 * usual))
				if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%.60q: %v", sent, err)
					return
				}
				c.Close()
			}
		})
	}
	for _, b := range append(hellos, others...) {
		try(r.At("hello"), b)
		try(r.At("both"), append(bytes.Clone(header1), b...))
	}
	for _, b := range headers {
		try(r.At("header"), b)
		try(r.At("both"), b)
	}
	beside.Wait()
	h.Stop()
	of := func(list [][]byte) int64 { return int64(len(list) * times) }
	r.refused("hello", map[string]int64{"hello": of(hellos), "no_route": of(others)})
	r.refused("header", map[string]int64{"proxy_header": of(headers)})
	r.refused("both", map[string]int64{"hello": of(hellos), "no_route": of(others), "proxy_header": of(headers)})
	r.settled(1000)
}

// TestChangedAnywhere: a ClientHello and a header with any of their bytes changed are served or
// refused. No client waits that has sent all bytes of its length fields. None of them leaves
// anything behind.
func TestChangedAnywhere(t *testing.T) {
	r := start(t, fmt.Sprintf(looking, echo(t), "1s"))
	hello := helloOf(t, "a.test")
	h := serveHonest(t, r.At("hello"), hello)
	all := append(bytes.Clone(header2), hello...)
	seed := [2]uint64{rand.Uint64(), rand.Uint64()}
	t.Logf("seed %v", seed)
	random := rand.New(rand.NewPCG(seed[0], seed[1]))
	var beside sync.WaitGroup
	for range 8 {
		var sent [][]byte
		for range 100 {
			b := bytes.Clone(all)
			for range 1 + random.IntN(3) {
				b[random.IntN(len(b))] = byte(random.Uint32())
			}
			sent = append(sent, b)
		}
		beside.Go(func() {
			for _, b := range sent {
				c, err := net.Dial("tcp", r.At("both"))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = c.Write(b)
				c.(*net.TCPConn).CloseWrite() // so that no client waits for more
				_, _ = c.Read(make([]byte, 1))
				c.Close()
			}
		})
	}
	beside.Wait()
	h.Stop()
	r.settled(1000)
	l := r.Listener("both")
	t.Logf("%d accepted, refused: %v", l.Connections.Accepted, l.Reasons)
	if l.Connections.Accepted != 800 || l.Reasons["other"]+l.Reasons["upstream"] > 0 {
		t.Errorf("%+v, %v", l.Connections, l.Reasons)
	}
}

// TestCutAnywhere: a client that leaves after any of its first bytes, by an end of file or a
// reset, leaves nothing behind. If it leaves in the middle it is counted.
func TestCutAnywhere(t *testing.T) {
	r := start(t, fmt.Sprintf(looking, echo(t), "20s"))
	hello := helloOf(t, "a.test")
	h := serveHonest(t, r.At("hello"), hello)
	for listener, all := range map[string][]byte{"hello": hello, "header": header2, "both": append(bytes.Clone(header1), hello...)} {
		before, address := r.Listener(listener).Reasons["preread"], r.At(listener)
		for _, linger := range []int{-1, 0} {
			for at := range all {
				c := dial(t, address)
				_ = c.SetLinger(linger)
				_, _ = c.Write(all[:at])
				c.Close()
			}
		}
		r.Until("the clients that have left are counted", func() bool {
			l := r.Listener(listener)
			return l.Reasons["preread"]-before >= int64(len(all))/2
		})
	}
	h.Stop()
	r.settled(2000)
	for _, name := range []string{"hello", "header", "both"} {
		l := r.Listener(name)
		for reason, n := range l.Reasons {
			if reason != "preread" {
				t.Errorf("%s has refused %d for %s", name, n, reason)
			}
		}
	}
}

// TestHeaderAlone: a header without further bytes is that of a client that reads first, and it is
// served. If more bytes are preread, the client times out.
func TestHeaderAlone(t *testing.T) {
	greeting := sockets.Server(t, func(c net.Conn) { _, _ = c.Write([]byte("hello")); _, _ = c.Read(make([]byte, 1)) })
	r := start(t, fmt.Sprintf(looking, greeting, "1s"))
	n := most(t, 300)
	var listening, silent []*net.TCPConn
	header, both := r.At("header"), r.At("both")
	for range n {
		l, s := dial(t, header), dial(t, both)
		_, _ = l.Write(header1)
		_, _ = s.Write(header2)
		listening, silent = append(listening, l), append(silent, s)
	}
	for i := range n {
		if _, err := readFull(listening[i], make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		reset(t, silent[i])
	}
	r.refused("both", map[string]int64{"preread": int64(n)})
	r.refused("header", nil)
	closeAll(append(listening, silent...))
	r.settled(2 * n)
}
