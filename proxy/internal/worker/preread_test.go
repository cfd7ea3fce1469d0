package worker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// helloOf returns the first message of a TLS client.
func helloOf(t *testing.T, name string, protocols ...string) []byte {
	t.Helper()
	return clienthello.Named(t, name, protocols...)
}

// peeks is the number of times that the loops have looked at clients' bytes.
func (r *rig) peeks() (n int64) {
	for _, l := range r.Summary().Loops {
		n += l.Peeks
	}
	return n
}

func mustWrite(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, c net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, %v; want the %d that were sent", len(got), err, len(want))
	}
}

// A hello that comes a byte at a time is looked at a few times, whatever its length. It is
// passed to the search as if it had come at once, and reaches the endpoint unchanged.
func TestHelloThatDrips(t *testing.T) {
	t.Parallel()

	var name atomic.Value
	d := straight(echo(t))
	connect := d.next
	d.next = func(c *worker.Client, n int) worker.Step {
		name.Store(c.Hello.ServerName)
		return connect(c, n)
	}
	r := directed(t, d, func(_ *worker.Config, s *worker.Service) {
		s.Preread = worker.Preread{Hello: true, Timeout: time.Minute}
	})
	r.serve(t)
	hello := helloOf(t, "drip.example", "h2")
	c := r.dial(t)
	for i := range hello {
		mustWrite(t, c, hello[i:i+1])
		if i%16 == 0 {
			r.Turn() // in which the loops get their events, if any
		}
	}
	mustRead(t, c, hello)
	if got := name.Load(); got != "drip.example" {
		t.Errorf("the hello's name is %q", got)
	}
	if n := r.peeks(); n > 8 {
		t.Errorf("%d bytes were looked at %d times", len(hello), n)
	}
	talk(t, c) // its low-water mark is that of any other
	if sum := r.Summary(); sum.Refused != 0 || d.joined.Load() != 1 {
		t.Errorf("the summary is %+v", sum)
	}
}

// A unix socket has no low-water mark; the hello arrives all the same.
func TestHelloThatDripsOverUnix(t *testing.T) {
	t.Parallel()

	r := newRigAt(t, "unix", sockets.Dir(t)+"/proxy", func(c *worker.Config) {
		c.Listeners[0].Service = serviceOf(t, straight(echo(t)))
		c.Listeners[0].Service.Preread = worker.Preread{Hello: true, Header: &proxyproto.Policy{From: source.NewSet([]source.Rule{source.UnixClients()})}}
	})
	r.serve(t)
	hello := helloOf(t, "unix.example")
	c := r.dial(t)
	for piece := range slices.Chunk(append([]byte("PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n"), hello...), 16) {
		mustWrite(t, c, piece)
	}
	mustRead(t, c, hello)
}

// A message that is no hello is refused at once, and counted.
func TestPrereadGarbage(t *testing.T) {
	t.Parallel()

	hello := helloOf(t, "cut.example")
	for name, x := range map[string]struct {
		sent    []byte
		preread worker.Preread
		why     worker.Refusal
	}{
		"http":             {[]byte("GET / HTTP/1.1\r\n\r\n"), worker.Preread{Hello: true}, worker.RefusedHello},
		"first byte":       {[]byte("\x00"), worker.Preread{Hello: true}, worker.RefusedHello},
		"hello of rubbish": {append(append([]byte(nil), hello[:60]...), bytes.Repeat([]byte{0xff}, len(hello)-60)...), worker.Preread{Hello: true}, worker.RefusedHello},
		"no header":        {hello, worker.Preread{Header: &proxyproto.Policy{}}, worker.RefusedHeader},
		"version":          {[]byte("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"), worker.Preread{Header: &proxyproto.Policy{Versions: []int{2}}}, worker.RefusedHeader},
		"header, no hello": {[]byte("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET /"), worker.Preread{Header: &proxyproto.Policy{}, Hello: true}, worker.RefusedHello},
	} {
		t.Run(name, func(t *testing.T) {
			r := directed(t, straight(echo(t)), func(_ *worker.Config, s *worker.Service) { s.Preread = x.preread })
			r.serve(t)
			c := r.dial(t)
			mustWrite(t, c, x.sent)
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client gets %v, want a reset", err)
			}
			eventually(t, func() bool { return r.Active() == 0 })
			if sum := r.Summary(); sum.Refusals[x.why] != 1 || sum.Refused != 1 {
				t.Errorf("refused %v, %v", sum.Refusals, r.causes())
			}
		})
	}
}

// oddHellos are messages that a client may send in place of a hello that is understood.
func oddHellos(t *testing.T) map[string][]byte {
	hello := helloOf(t, "odd.example", "h2")
	return map[string][]byte{
		"http":        []byte("GET / HTTP/1.1\r\n\r\n"),
		"ssh":         []byte("SSH-2.0-client\r\n"),
		"zeros":       make([]byte, 5000),
		"two dots":    bytes.Replace(hello, []byte("odd.example"), []byte("oddexampl.."), 1),
		"empty alpn":  bytes.Replace(hello, []byte("\x00\x03\x02h2"), []byte("\x00\x03\x00\x00\x00"), 1),
		"too long":    {22, 3, 1, 0x3f, 0xff, 1, 0xff, 0xff, 0xff},
		"no hello":    {22, 3, 1, 0, 4, 2, 0, 0, 0},
		"alert":       {21, 3, 1, 0, 2, 2, 40},
		"rubbish":     append(append([]byte(nil), hello[:60]...), bytes.Repeat([]byte{0xff}, len(hello)-60)...),
		"http, drips": []byte("\x16\x03GET / HTTP/1.1\r\n\r\n"),
	}
}

// Where no rule needs a hello, a client without one that is understood is served. Its bytes
// reach the endpoint, at once or in pieces.
func TestAnyHello(t *testing.T) {
	t.Parallel()

	for _, network := range []string{"tcp", "unix"} {
		for name, sent := range oddHellos(t) {
			t.Run(network+" "+name, func(t *testing.T) {
				d := straight(echo(t))
				served := d.next
				d.next = func(c *worker.Client, n int) worker.Step {
					if c.Hello.ServerName != "" || c.Hello.ALPN != nil {
						t.Errorf("the hello has %+v", c.Hello)
					}
					return served(c, n)
				}
				address := "127.0.0.1:0"
				if network == "unix" {
					address = sockets.Dir(t) + "/proxy"
				}
				r := newRigAt(t, network, address, func(c *worker.Config) {
					c.Listeners[0].Service = serviceOf(t, d)
					c.Listeners[0].Service.Preread = worker.Preread{Hello: true, AnyHello: true, Timeout: time.Hour}
				})
				r.serve(t)
				for _, size := range []int{len(sent), 7} {
					c := r.dial(t)
					for piece := range slices.Chunk(sent, size) {
						mustWrite(t, c, piece)
						r.Turn()
					}
					mustRead(t, c, sent)
					talk(t, c)
				}
				if sum := r.Summary(); sum.Refused != 0 || sum.Loops[0].HellosMissing+sum.Loops[1].HellosMissing != 2 {
					t.Errorf("the summary is %+v", sum)
				}
			})
		}
	}
}

// So is one that has sent nothing when its time is over; but not one that has sent nothing where data is
// waited for, or has ended so; nor one that stops or ends in the middle of a hello, whose name might have decided.
func TestAnyHelloInTime(t *testing.T) {
	t.Parallel()

	hello := helloOf(t, "late.example")
	for name, x := range map[string]struct {
		sent   []byte
		data   bool
		end    bool
		served bool
	}{
		"nothing":       {nil, false, false, true},
		"nothing, data": {nil, true, false, false},
		"nothing, end":  {nil, false, true, false},
		"part":          {hello[:100], false, false, false},
		"part, data":    {hello[:100], true, false, false},
		"byte, data":    {hello[:1], true, false, false},
		"part, end":     {hello[:100], false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var clock atomic.Int64
			clock.Store(1)
			r := directed(t, straight(echo(t)), func(c *worker.Config, s *worker.Service) {
				s.Preread, c.Now = worker.Preread{Hello: true, AnyHello: true, Data: x.data, Timeout: 4 * time.Second}, clock.Load
			})
			r.serve(t)
			c := r.dial(t)
			mustWrite(t, c, x.sent)
			eventually(t, func() bool { return r.Active() == 1 })
			if len(x.sent) > 0 {
				eventually(t, func() bool { return r.peeks() > 0 })
			}
			clock.Add(int64(3900 * time.Millisecond))
			r.Wake()
			r.Turn()
			if n := r.Summary().Loops; n[0].HellosMissing+n[1].HellosMissing != 0 {
				t.Fatal("served before its time")
			}
			if x.end {
				if err := c.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			} else {
				clock.Add(int64(200 * time.Millisecond))
				r.Wake()
			}
			if !x.served {
				eventually(t, func() bool { return r.Active() == 0 })
				return
			}
			mustRead(t, c, x.sent)
			if !x.end {
				talk(t, c)
			}
			if sum := r.Summary(); sum.Refused != 0 {
				t.Errorf("the summary is %+v", sum)
			}
		})
	}
}

// A client that leaves while it is waited for frees its place: by a reset or an end of
// file, with nothing sent or a part.
func TestPrereadLeaves(t *testing.T) {
	t.Parallel()

	hello := helloOf(t, "gone.example")
	part := []byte("PROXY TCP4 1.2.3.4")
	for name, x := range map[string]struct {
		sent    []byte
		preread worker.Preread
		leave   func(net.Conn)
		ended   int64 // of those, that are refused because they ended
	}{
		"hello/reset":        {nil, worker.Preread{Hello: true}, reset, 0},
		"hello/part/reset":   {hello[:100], worker.Preread{Hello: true}, reset, 0},
		"hello/end":          {nil, worker.Preread{Hello: true}, func(c net.Conn) { c.Close() }, 0},
		"hello/part/end":     {hello[:100], worker.Preread{Hello: true}, func(c net.Conn) { c.Close() }, 1},
		"hello/half/end":     {hello[:3], worker.Preread{Hello: true}, func(c net.Conn) { c.(*net.TCPConn).CloseWrite() }, 1},
		"header/reset":       {part, worker.Preread{Header: &proxyproto.Policy{}}, reset, 0},
		"header/end":         {part, worker.Preread{Header: &proxyproto.Policy{}}, func(c net.Conn) { c.Close() }, 1},
		"data/reset":         {nil, worker.Preread{Data: true}, reset, 0},
		"data/end":           {nil, worker.Preread{Data: true}, func(c net.Conn) { c.Close() }, 0},
		"header, hello/part": {[]byte("PROXY UNKNOWN\r\n\x16"), worker.Preread{Header: &proxyproto.Policy{}, Hello: true}, func(c net.Conn) { c.Close() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := new(counted)
			r := directed(t, straight(echo(t)), func(_ *worker.Config, s *worker.Service) { s.Preread, s.Admitter = x.preread, a })
			r.serve(t)
			const clients = 3
			for range clients {
				c := r.dial(t)
				eventually(t, func() bool { return r.Active() == 1 })
				mustWrite(t, c, x.sent)
				r.Turn()
				x.leave(c)
				eventually(t, func() bool { return r.Active() == 0 })
			}
			sum := r.Summary()
			if sum.Refusals[worker.RefusedEnded] != x.ended*clients || sum.Refused != x.ended*clients {
				t.Errorf("the summary is %+v", sum)
			}
			if a.in.Load() != clients || a.left.Load() != clients {
				t.Errorf("%d were admitted, and %d have left", a.in.Load(), a.left.Load())
			}
		})
	}
}

// A client that sends too little for too long is refused, header and hello by timeouts of
// their own.
func TestPrereadTimeouts(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]struct {
		preread worker.Preread
		sent    string
		want    error
	}{
		"hello":            {worker.Preread{Hello: true, Timeout: 4 * time.Second}, "\x16\x03\x01\x02", worker.ErrPrereadTimeout},
		"data":             {worker.Preread{Data: true, Timeout: 4 * time.Second}, "", worker.ErrPrereadTimeout},
		"header":           {worker.Preread{Header: &proxyproto.Policy{Timeout: 4 * time.Second}, Timeout: time.Hour, Data: true}, "PROXY ", worker.ErrHeaderTimeout},
		"after the header": {worker.Preread{Header: &proxyproto.Policy{Timeout: time.Hour}, Timeout: 4 * time.Second, Data: true}, "PROXY UNKNOWN\r\n", worker.ErrPrereadTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			var clock atomic.Int64
			clock.Store(1)
			r := directed(t, straight(echo(t)), func(c *worker.Config, s *worker.Service) { s.Preread, c.Now = x.preread, clock.Load })
			r.serve(t)
			c := r.dial(t)
			mustWrite(t, c, []byte(x.sent))
			eventually(t, func() bool { return r.Active() == 1 })
			if x.sent != "" {
				eventually(t, func() bool { return r.peeks() > 0 })
			}
			clock.Add(int64(3900 * time.Millisecond))
			r.Wake()
			r.Turn()
			if n := len(r.causes()); n != 0 {
				t.Fatalf("refused before its time: %v", r.causes())
			}
			clock.Add(int64(200 * time.Millisecond))
			r.Wake()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client gets %v, want a reset", err)
			}
			eventually(t, func() bool { return len(r.causes()) == 1 })
			if got := r.causes()[0]; got != x.want || r.Summary().Refusals[worker.RefusedTimeout] != 1 {
				t.Errorf("refused for %v, want %v", got, x.want)
			}
		})
	}
}

// A PROXY header is taken away to the byte, whatever follows it and however it comes, and
// identifies the client. From other clients nothing is taken.
func TestHeaderIsTakenAway(t *testing.T) {
	t.Parallel()

	const line = "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n"
	from := netip.MustParseAddrPort("192.0.2.1:4711")
	for name, x := range map[string]struct {
		pieces  []string
		trusted string
		rest    string
		known   bool
	}{
		"at once":  {[]string{line + "hello"}, "127.0.0.0/8", "hello", true},
		"in parts": {[]string{line[:1], line[1:20], line[20:] + "he", "llo"}, "127.0.0.0/8", "hello", true},
		"alone":    {[]string{line, "hello"}, "127.0.0.0/8", "hello", true},
		"anybody":  {[]string{line + "hello"}, "", "hello", true},
		"others":   {[]string{line + "hello"}, "10.0.0.0/8", line + "hello", false},
	} {
		t.Run(name, func(t *testing.T) {
			a, policy := new(counted), new(proxyproto.Policy)
			if x.trusted != "" {
				policy.From = source.NewSet([]source.Rule{source.Prefix(netip.MustParsePrefix(x.trusted))})
			}
			r := directed(t, straight(echo(t)), func(_ *worker.Config, s *worker.Service) { s.Admitter, s.Preread.Header = a, policy })
			r.serve(t)
			c := r.dial(t)
			for _, piece := range x.pieces {
				mustWrite(t, c, []byte(piece))
				r.Turn()
			}
			mustRead(t, c, []byte(x.rest))
			want := source.TCP(c.LocalAddr().(*net.TCPAddr).AddrPort())
			if x.known {
				want = source.TCP(from)
			}
			if len(a.sources) != 1 || a.sources[0] != want {
				t.Errorf("admitted as %v, want %v", a.sources, want)
			}
			for s := range r.Sessions(context.Background(), new(worker.Query)) {
				if s.Client != want.String() {
					t.Errorf("listed as %v, want %v", s.Client, want)
				}
			}
		})
	}
}

// Thousands of clients whose hello never comes hold little, and others are served.
func TestDrippingClientsHoldLittle(t *testing.T) {
	const clients = 1000
	r := directed(t, straight(echo(t)), func(c *worker.Config, s *worker.Service) {
		c.MaxConnections, c.Listeners[0].Backlog = 2*clients, clients
		s.Preread = worker.Preread{Hello: true, Timeout: time.Hour}
	})
	r.serve(t)
	hello := helloOf(t, "some.example")
	c := r.dial(t)
	mustWrite(t, c, hello)
	mustRead(t, c, hello)
	before := heap()
	var drips []net.Conn
	for range clients {
		drips = append(drips, r.dial(t))
		mustWrite(t, drips[len(drips)-1], hello[:200])
	}
	eventually(t, func() bool { return r.peeks() >= clients })
	peeks := r.peeks()
	if each := (heap() - before) / clients; each > 4096 {
		t.Errorf("each holds %d bytes, both ends together", each)
	}
	for i, c := range drips {
		mustWrite(t, c, hello[200+i%7:201+i%7])
	}
	r.Turn()
	if n := r.peeks() - peeks; n > 0 {
		t.Errorf("a byte of each was looked at %d times", n)
	}
	other := r.dial(t)
	mustWrite(t, other, hello)
	mustRead(t, other, hello)
	var leaving sync.WaitGroup
	for _, c := range drips {
		leaving.Go(func() { reset(c) })
	}
	leaving.Wait()
	eventually(t, func() bool { return r.Active() == 2 })
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// Bytes hidden by an urgent mark are not looked at again and again.
func TestHelloBehindAnUrgentMark(t *testing.T) {
	t.Parallel()

	r := directed(t, straight(echo(t)), func(_ *worker.Config, s *worker.Service) {
		s.Preread = worker.Preread{Hello: true, Timeout: time.Hour}
	})
	r.serve(t)
	hello := helloOf(t, "urgent.example")
	c := r.dial(t)
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, c, hello[:50])
	var sent error
	err = raw.Control(func(fd uintptr) { _, sent = sys.Send(int(fd), hello[50:51], sys.MSG_OOB) })
	if err != nil || sent != nil {
		t.Fatal(err, sent)
	}
	mustWrite(t, c, hello[51:])
	for range 50 {
		r.Turn()
	}
	if n := r.peeks(); n > 8 {
		t.Errorf("it was looked at %d times", n)
	}
	reset(c)
	eventually(t, func() bool { return r.Active() == 0 })
}
