package worker_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// retryRequest is the beginning of a HelloRetryRequest.
func retryRequest() []byte {
	random := sha256.Sum256([]byte("HelloRetryRequest"))
	message := append([]byte{2, 0, 0, 34 + 6, 3, 3}, random[:]...)
	message = append(message, 0, 0x13, 1, 0, 0, 0)
	return append([]byte{22, 3, 3, 0, byte(len(message))}, message...)
}

// serverHello is a ServerHello that asks for nothing.
func serverHello() []byte {
	b := retryRequest()
	b[20]++
	return b
}

// cut cuts the one record of b into records of n bytes.
func cut(b []byte, n int) (cut []byte) {
	for piece := range slices.Chunk(b[5:], n) {
		cut = append(append(cut, 22, 3, 3, byte(len(piece)>>8), byte(len(piece))), piece...)
	}
	return cut
}

func typed(kind byte, body []byte) []byte {
	return append([]byte{kind, 3, 3, byte(len(body) >> 8), byte(len(body))}, body...)
}

// TestSecondHello: what a client sends behind its hello waits for the endpoint's answer; if that asks for a second hello, the hello has to ask
// for the same name and protocols, or the client is refused, in whatever pieces, segments and records anything comes.
func TestSecondHello(t *testing.T) {
	t.Parallel()

	first, same, other := helloOf(t, "public.example", "h2"), helloOf(t, "Public.Example.", "h2"), helloOf(t, "admin.example", "h2")
	protocol, long := helloOf(t, "public.example", "http/1.1"), largeHello(t, "public.example")
	nameless := clienthello.Of(t, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	change, early := typed(20, []byte{1}), typed(23, make([]byte, 16<<10))
	warning, alert := typed(21, []byte{1, 112}), typed(21, []byte{2, 47})
	retry := retryRequest()
	for name, x := range map[string]struct {
		first           []byte // other than the usual
		answer, second  []byte
		again, third    []byte // what the endpoint answers to the second hello, and what comes then
		refused, buffer bool
	}{
		"the same":                       {answer: retry, second: same},
		"another name":                   {answer: retry, second: other, refused: true},
		"other protocols":                {answer: retry, second: protocol, refused: true},
		"without a name":                 {answer: retry, second: nameless, refused: true},
		"another name in small records":  {answer: retry, second: cut(other, 7), refused: true},
		"the same in small records":      {answer: retry, second: cut(same, 1)},
		"a fragmented answer":            {answer: cut(retry, 1), second: other, refused: true},
		"a fragmented answer, the same":  {answer: cut(retry, 1), second: same},
		"a warning before the answer":    {answer: slices.Concat(warning, retry), second: other, refused: true},
		"early data":                     {answer: retry, second: slices.Concat(change, early, early, early, same)},
		"early data, another name":       {answer: retry, second: slices.Concat(change, early, early, early, other), refused: true},
		"a warning, another name":        {answer: retry, second: slices.Concat(warning, other), refused: true},
		"an alert":                       {answer: retry, second: alert},
		"a third, of another name":       {answer: slices.Concat(retry, change), second: same, again: retry, third: other, refused: true},
		"a third, after small records":   {answer: cut(retry, 3), second: cut(same, 20), again: cut(retry, 2), third: cut(other, 20), refused: true},
		"a third, the same":              {answer: slices.Concat(retry, change), second: same, again: retry, third: slices.Concat(change, same)},
		"an answer to the second":        {answer: slices.Concat(retry, change), second: same, again: serverHello(), third: other},
		"another message":                {answer: retry, second: typed(22, []byte{16, 0, 0, 4, 1, 2, 3, 4}), refused: true},
		"no TLS":                         {answer: retry, second: []byte("GET / HTTP/1.1\r\n\r\n"), refused: true},
		"a part of a hello":              {answer: retry, second: other[:len(other)-1]},
		"a part of a header":             {answer: retry, second: other[:3]},
		"nothing":                        {answer: retry},
		"a change of the cipher between": {answer: retry, second: slices.Concat(cut(other[:50], 100), change, cut(append(make([]byte, 5), other[50:]...), 1000)), refused: true},
		"a long one":                     {first: helloOf(t, "public.example", alpnOf(long)...), answer: retry, second: long},
		"a hello, of another name":       {answer: serverHello(), second: other}, // which the endpoint does not take for one
		"no TLS of the endpoint":         {answer: []byte("SSH-2.0-OpenSSH"), second: other},
		"an answer that ends":            {answer: retry[:20], second: other},
		"taken, another name":            {answer: retry, second: other, refused: true, buffer: true},
		"taken, the same":                {answer: retry, second: slices.Concat(change, early, same), buffer: true},
	} {
		for _, way := range []string{"at once", "after the answer", "byte by byte"} {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				ln := listenOn(t)
				network := "tcp"
				if x.buffer { // bytes of a unix socket are taken as soon as a piece is missing
					network = "unix"
				}
				r := directedOn(t, network, straight(ln.Addr().String()), func(c *setup, s *worker.Service) {
					s.Preread = worker.Preread{Hello: true, Timeout: time.Minute}
					if len(name)%2 == 0 {
						c.Relay = relayOf(t, relay.EngineSplice)
					}
				})
				r.serve(t)
				hello := first
				if x.first != nil {
					hello = x.first
				}
				c := r.dial(t)
				if x.buffer {
					mustWrite(t, c, hello[:10])
					r.Turn()
					hello = hello[10:]
				}
				if way == "at once" {
					mustWrite(t, c, append(bytes.Clone(hello), x.second...))
				} else {
					mustWrite(t, c, hello)
				}
				e := accept(t, ln)
				if x.buffer {
					hello = append(bytes.Clone(first[:10]), hello...)
				}
				mustRead(t, e, hello)
				r.Turn()
				if ready(t, e) {
					t.Fatal("more than the hello has come before there was an answer")
				}
				mustWrite(t, e, x.answer)
				if name == "an answer that ends" {
					_ = e.(*net.TCPConn).CloseWrite()
				}
				mustRead(t, c, x.answer)
				switch way {
				case "after the answer":
					mustWrite(t, c, x.second)
				case "byte by byte":
					for i := range x.second {
						if _, err := c.Write(x.second[i : i+1]); err != nil && !x.refused {
							t.Fatal(err)
						}
						if len(x.second) < 2000 {
							r.Turn()
						}
					}
				}
				rest := x.second
				if x.again != nil {
					mustRead(t, e, rest)
					rest = x.third
					mustWrite(t, c, rest)
					r.Turn()
					if ready(t, e) {
						t.Fatal("more than the second hello has come before there was an answer to it")
					}
					mustWrite(t, e, x.again)
					mustRead(t, c, x.again)
				}
				if !x.refused {
					_ = c.(interface{ CloseWrite() error }).CloseWrite()
				}
				got, err := io.ReadAll(e)
				if !x.refused {
					if err != nil || !bytes.Equal(got, rest) {
						t.Errorf("the endpoint got %d bytes, %v; want %d", len(got), err, len(rest))
					}
					e.Close()
					eventually(t, func() bool { return r.Active() == 0 })
					return
				}
				if !errors.Is(err, syscall.ECONNRESET) || bytes.Contains(slices.Concat(hello, got), other) {
					t.Errorf("the endpoint got %d bytes, %v", len(got), err)
				}
				eventually(t, func() bool { return r.Active() == 0 })
				if sum := r.Summary(); sum.Refused != 1 || !errors.Is(r.causes()[0], worker.ErrSecondHello) {
					t.Errorf("%d refused, %v", sum.Refused, r.causes())
				}
			})
		}
	}
}

// alpnOf returns the protocols of a hello.
func alpnOf(hello []byte) (protocols []string) {
	_ = tls.Server(&reads{b: hello}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		protocols = h.SupportedProtos
		return nil, io.EOF
	}}).Handshake()
	return protocols
}

// reads is a connection from which b comes.
type reads struct {
	net.Conn
	b []byte
}

func (r *reads) Read(p []byte) (int, error) {
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}
func (r *reads) Write(p []byte) (int, error) { return len(p), nil }
func (r *reads) Close() error                { return nil }

// ready reports whether bytes have come.
func ready(t *testing.T, c net.Conn) (is bool) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		is = err == nil && n > 0
	})
	return is
}

// TestSecondHelloStays: a client that changes a second hello while it is queued, after it was looked at, does not change what the endpoint gets.
func TestSecondHelloStays(t *testing.T) {
	t.Parallel()

	first, other := helloOf(t, "public.example", "h2"), helloOf(t, "admin1.example", "h2")
	ln := listenOn(t)
	r := directed(t, straight(ln.Addr().String()), func(c *setup, s *worker.Service) {
		s.Preread = worker.Preread{Hello: true, Timeout: time.Minute}
		c.Relay = relayOf(t, relay.EngineSplice) // the endpoint's queue holds pages too
	})
	r.serve(t)
	c := r.dial(t)
	mustWrite(t, c, first)
	e := accept(t, ln)
	mustRead(t, e, first)
	change := sockets.SendPages(t, c.(syscall.Conn), first)
	mustWrite(t, e, retryRequest())
	mustRead(t, c, retryRequest())
	eventually(t, func() bool { return ready(t, e) })
	change(other)
	mustRead(t, e, first)
}
