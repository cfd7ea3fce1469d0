package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// helloOf returns the first message of a TLS client.
func helloOf(t *testing.T, name string, protocols ...string) []byte {
	t.Helper()
	return clienthello.Named(t, name, protocols...)
}

// sum adds up a counter of the loops.
func (r *rig) sum(of func(l *worker.Load) int64) (n int64) {
	loops := r.Summary().Loops
	for i := range loops {
		n += of(&loops[i])
	}
	return n
}

// peeks is how often the loops have looked at clients' bytes, and taken how many bytes they took instead.
func (r *rig) peeks() int64 { return r.sum(func(l *worker.Load) int64 { return l.Peeks }) }
func (r *rig) taken() int64 { return r.sum(func(l *worker.Load) int64 { return l.Taken }) }

// overruns is how many turns took a millisecond of CPU time.
func (r *rig) overruns() int64 { return r.sum(func(l *worker.Load) int64 { return l.Overruns }) }

func (r *rig) hellosMissing() int64 {
	return r.sum(func(l *worker.Load) int64 { return l.HellosMissing })
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
	r := directed(t, d, func(_ *setup, s *worker.Service) {
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
				r := directedOn(t, network, d, func(_ *setup, s *worker.Service) {
					s.Preread = worker.Preread{Hello: true, AnyHello: true, Timeout: time.Hour}
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
				if sum := r.Summary(); sum.Refused != 0 || r.hellosMissing() != 2 {
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
			r, pass := clocked(t, straight(echo(t)), func(_ *setup, s *worker.Service) {
				s.Preread = worker.Preread{Hello: true, AnyHello: true, Data: x.data, Timeout: 4 * time.Second}
			})
			c := r.dial(t)
			mustWrite(t, c, x.sent)
			eventually(t, func() bool { return r.Active() == 1 })
			if len(x.sent) > 0 {
				eventually(t, func() bool { return r.peeks() > 0 })
			}
			pass(3900 * time.Millisecond)
			if r.hellosMissing() != 0 {
				t.Fatal("served before its time")
			}
			if x.end {
				if err := c.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			} else {
				pass(200 * time.Millisecond)
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

// A client that sends too little for too long is refused, header and hello by timeouts of
// their own.
func TestPrereadTimeouts(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]struct {
		preread worker.Preread
		sent    string
		want    string
	}{
		"hello":            {worker.Preread{Hello: true, Timeout: 4 * time.Second}, "\x16\x03\x01\x02", "preread timeout: the client's first bytes were incomplete after 4s: only 4 bytes of its TLS hello had arrived"},
		"data":             {worker.Preread{Data: true, Timeout: 4 * time.Second}, "", "preread timeout: the client has sent nothing for 4s"},
		"header":           {worker.Preread{Header: &proxyproto.Policy{Timeout: 4 * time.Second}, Timeout: time.Hour, Data: true}, "PROXY ", "PROXY header timeout: the client's first bytes were incomplete after 4s: only 6 bytes of its PROXY header had arrived"},
		"after the header": {worker.Preread{Header: &proxyproto.Policy{Timeout: time.Hour}, Timeout: 4 * time.Second, Data: true}, "PROXY UNKNOWN\r\n", "preread timeout: the client has sent nothing for 4s"},
		"http":             {worker.Preread{First: new(hosts), Timeout: 4 * time.Second}, "GET / HTTP/1.1\r\nHost: a", "preread timeout: the client's first bytes were incomplete after 4s: only 23 bytes of the bytes that determine its route had arrived"},
		"startup message":  {worker.Preread{Postgres: &worker.Postgres{}, Timeout: 4 * time.Second}, "\x00\x00\x00\x29\x00\x03\x00\x00user", "preread timeout: the client's first bytes were incomplete after 4s: only 12 bytes of its PostgreSQL message had arrived"},
	} {
		t.Run(name, func(t *testing.T) {
			r, pass := clocked(t, straight(echo(t)), func(_ *setup, s *worker.Service) { s.Preread = x.preread })
			c := r.dial(t)
			mustWrite(t, c, []byte(x.sent))
			eventually(t, func() bool { return r.Active() == 1 })
			if x.sent != "" {
				eventually(t, func() bool { return r.peeks() > 0 })
			}
			pass(3900 * time.Millisecond)
			if n := len(r.causes()); n != 0 {
				t.Fatalf("refused before its time: %v", r.causes())
			}
			pass(200 * time.Millisecond)
			wasReset(t, c)
			eventually(t, func() bool { return len(r.causes()) == 1 })
			if got := r.causes()[0]; got.Error() != x.want || r.Summary().Refused != 1 {
				t.Errorf("refused for %v, want %v", got, x.want)
			}
		})
	}
}

// A PROXY header is taken away to the byte, whatever follows it and however it comes, and identifies the client. From
// clients that the policy does not name nothing is taken. A unix client has its own source if its header has none.
func TestHeaderIsTakenAway(t *testing.T) {
	t.Parallel()

	const line, unknown = "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n", "PROXY UNKNOWN\r\n"
	local := string(proxyproto.Append(nil, 2, &proxyproto.Connection{Local: true}))
	from := source.TCP(netip.MustParseAddrPort("192.0.2.1:4711"))
	user := uint32(os.Geteuid())
	self := source.Unix(source.Credentials{UID: user, GID: uint32(os.Getegid()), PID: int32(os.Getpid())})
	all := source.Prefix(netip.MustParsePrefix("0.0.0.0/0"))
	for name, x := range map[string]struct {
		pieces  []string
		trusted []source.Rule // nil: all
		rest    string
		want    source.Source // unknown: its own address
	}{
		"tcp/at once":    {[]string{line + "hello"}, []source.Rule{source.Prefix(netip.MustParsePrefix("127.0.0.0/8"))}, "hello", from},
		"tcp/in parts":   {[]string{line[:1], line[1:20], line[20:] + "he", "llo"}, []source.Rule{all}, "hello", from},
		"tcp/alone":      {[]string{line, "hello"}, []source.Rule{all}, "hello", from},
		"tcp/anybody":    {[]string{line + "hello"}, nil, "hello", from},
		"tcp/others":     {[]string{line + "hello"}, []source.Rule{source.Prefix(netip.MustParsePrefix("10.0.0.0/8"))}, line + "hello", source.Source{}},
		"unix/everybody": {[]string{line + "hello"}, nil, "hello", from},
		"unix/named":     {[]string{line + "hello"}, []source.Rule{source.UnixUser(user)}, "hello", from},
		"unix/unknown":   {[]string{unknown + "hello"}, []source.Rule{source.UnixUser(user)}, "hello", self},
		"unix/local":     {[]string{local + "hello"}, []source.Rule{source.UnixUser(user)}, "hello", self},
		"unix/not named": {[]string{line + "hello"}, []source.Rule{all, source.UnixUser(user + 1)}, line + "hello", self},
	} {
		t.Run(name, func(t *testing.T) {
			a, policy := new(counted), new(proxyproto.Policy)
			if x.trusted != nil {
				policy.From = source.NewSet(x.trusted)
			}
			network, _, _ := strings.Cut(name, "/")
			r := directedOn(t, network, straight(echo(t)), func(_ *setup, s *worker.Service) { s.Admitter, s.Preread.Header = a, policy })
			r.serve(t)
			c := r.dial(t)
			for _, piece := range x.pieces {
				mustWrite(t, c, []byte(piece))
				r.Turn()
			}
			mustRead(t, c, []byte(x.rest))
			if !x.want.Known() {
				x.want = source.TCP(c.LocalAddr().(*net.TCPAddr).AddrPort())
			}
			if len(a.sources) != 1 || a.sources[0] != x.want {
				t.Errorf("admitted as %v, want %v", a.sources, x.want)
			}
			for s := range r.Sessions(context.Background(), new(worker.Query)) {
				if s.Client != x.want.String() {
					t.Errorf("listed as %v, want %v", s.Client, x.want)
				}
			}
		})
	}
}

// Thousands of clients whose hello never comes hold little, and others are served.
func TestDrippingClientsHoldLittle(t *testing.T) {
	const clients = 1000
	r := directed(t, straight(echo(t)), func(c *setup, s *worker.Service) {
		c.MaxConnections = 2 * clients
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

	r := directed(t, straight(echo(t)), func(_ *setup, s *worker.Service) {
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

// largeHello is one of almost 16 KiB.
func largeHello(t *testing.T, name string) []byte {
	var protocols []string
	for i := range 420 {
		protocols = append(protocols, fmt.Sprintf("protocol-%04d-%020d", i, i))
	}
	hello := helloOf(t, name, protocols...)
	if len(hello) < 14_000 {
		t.Fatalf("the hello has %d bytes", len(hello))
	}
	return hello
}

// Bytes that come one by one fill the receive buffer, so that the low-water mark is not
// kept to any more. Then they are taken, and the hello arrives anyway, with a header before
// it or behind it, and more behind it, for a number of looks that does not grow with the
// number of bytes.
func TestLargeHellosThatDrip(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]drip{
		"tcp":          {network: "tcp", engine: relay.EngineAuto},
		"with headers": {network: "tcp", header: "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n", proxyHeader: "preface", engine: relay.EngineSplice},
		"unix":         {network: "unix", engine: relay.EngineCopy},
	} {
		t.Run(name, func(t *testing.T) {
			untilTaken(t, func() int64 { return x.arrive(t) })
		})
	}
}

// untilTaken repeats a drip until some of its bytes were taken. Chance decides how many
// segments the kernel puts together, and whether the rest fills the buffer.
func untilTaken(t *testing.T, drip func() (taken int64)) {
	t.Helper()
	for range 10 {
		if drip() > 0 {
			return
		}
	}
	t.Error("nothing was taken: the test does not test its claim")
}

// A drip is a hello that comes in small pieces, from several clients.
type drip struct {
	network, header string
	proxyHeader     string
	engine          relay.Engine
}

// arrive has four clients drip, and returns how many bytes were taken out of their sockets.
func (x *drip) arrive(t *testing.T) int64 {
	const clients = 4
	ln := listenOn(t)
	d := &director{header: []byte(x.proxyHeader), next: func(of *worker.Client, _ int) worker.Step {
		step := connectTo(ln.Addr().String())
		step.ProxyHeader = x.proxyHeader != ""
		if of.Hello.ServerName != "drip.example" {
			t.Errorf("the hello's name is %q", of.Hello.ServerName)
		}
		return step
	}}
	r := directedOn(t, x.network, d, func(c *setup, s *worker.Service) {
		s.Preread = worker.Preread{Hello: true, Timeout: time.Minute}
		if x.header != "" {
			s.Preread.Header = &proxyproto.Policy{}
		}
		c.Relay = relayOf(t, x.engine)
	})
	r.serve(t)
	hello := largeHello(t, "drip.example")
	conns := r.dials(t, clients)
	piece := 1
	if x.network == "unix" {
		piece = 100
	}
	for i, part := range slices.Collect(slices.Chunk(append([]byte(x.header), hello...), piece)) {
		for _, c := range conns {
			mustWrite(t, c, part)
		}
		if i*piece%100 == 0 {
			r.Turn() // in which the loops handle their events
		}
	}
	var served sync.WaitGroup
	for range clients {
		e, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		served.Go(func() {
			defer e.Close()
			first := make([]byte, len(x.proxyHeader)+len(hello))
			_, _ = io.ReadFull(e, first)
			_, _ = e.Write([]byte("ans")) // what is behind the hello waits for it
			rest, err := io.ReadAll(e)
			if got, want := string(first)+string(rest), x.proxyHeader+string(hello)+"behind"; err != nil || got != want {
				t.Errorf("the endpoint got %d bytes, %v; want %d", len(got), err, len(want))
			}
			_, _ = e.Write([]byte("wer"))
		})
	}
	for _, c := range conns {
		mustWrite(t, c, []byte("behind"))
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, []byte("answer")) {
			t.Errorf("the client got %q, %v", got, err)
		}
	}
	served.Wait()
	eventually(t, func() bool { return r.Active() == 0 })
	if n := r.peeks(); n > clients*400 {
		t.Errorf("%d hellos of %d bytes were looked at %d times", clients, len(hello), n)
	}
	if moved := r.Summary().Totals.ClientToEndpoint; moved.Copied+moved.Spliced != int64(clients*(len(hello)+len("behind"))) {
		t.Errorf("%+v were moved", moved)
	}
	return r.taken()
}

// The bytes that were taken are handed over with the client.
func TestHandoverOfADrip(t *testing.T) {
	t.Parallel()

	untilTaken(t, func() int64 { return handOverDrip(t) })
}

func handOverDrip(t *testing.T) int64 {
	x := newHand(t, &tie{upstream: "u", endpoint: "e"})
	r := directed(t, x.director(), func(_ *setup, s *worker.Service) {
		s.Preread = worker.Preread{Hello: true, Timeout: time.Minute}
	})
	r.serve(t)
	hello := largeHello(t, "terminated.example")
	conns := []net.Conn{r.dial(t), r.dial(t), r.dial(t), r.dial(t)} // segments of one alone are put together by the kernel
	for i := range hello {
		for _, c := range conns {
			mustWrite(t, c, hello[i:i+1])
		}
		if i%100 == 0 {
			r.Turn()
		}
	}
	for _, c := range conns {
		mustRead(t, c, hello)
		talk(t, c)
	}
	return r.taken()
}

// TestFirstBytesThatFillAUnixSocket: a client whose pieces fill a socket before they are looked at once, so that no
// further event comes of it, is served, by all of its first bytes.
func TestFirstBytesThatFillAUnixSocket(t *testing.T) {
	t.Parallel()

	const header = "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n"
	hello := helloOf(t, "full.example", strings.Repeat("p", 200))
	long := []byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 1000) + "\r\nHost: full.example\r\n\r\n")
	for name, x := range map[string]struct {
		header string
		sent   []byte
		worker.Preread
	}{
		"hello":            {sent: hello, Preread: worker.Preread{Hello: true, AnyHello: true}},
		"header and hello": {header: header, sent: hello, Preread: worker.Preread{Hello: true, AnyHello: true, Header: new(proxyproto.Policy)}},
		"first bytes":      {sent: long, Preread: worker.Preread{First: new(hosts)}},
		"look":             {sent: hello},
	} {
		for of, room := range map[string]int{"": 0, " with little room": 1} {
			t.Run(name+of, func(t *testing.T) {
				d := straight(echo(t))
				connect := d.next
				d.next = func(c *worker.Client, n int) worker.Step {
					looks := !x.Hello && x.First == nil
					switch {
					case x.Hello && c.Hello.ServerName != "full.example":
						t.Errorf("the hello's name is %q", c.Hello.ServerName)
					case looks && n == 1:
						return worker.Step{Action: worker.Look, Need: len(x.sent), Most: len(x.sent)}
					case looks && n == 2 && string(c.Looked) != string(x.sent):
						t.Errorf("%d bytes of %d are looked at", len(c.Looked), len(x.sent))
					}
					return connect(c, n)
				}
				x.Timeout = 20 * time.Second
				r := directedOn(t, "unix", d, func(_ *setup, s *worker.Service) { s.Preread = x.Preread })
				c, sent := r.dial(t), []byte(x.header+string(x.sent))
				queued := fill(t, c, sent, room)
				r.serve(t)
				for i := range sent[queued:] {
					mustWrite(t, c, sent[queued+i:queued+i+1])
				}
				mustRead(t, c, x.sent)
				talk(t, c)
			})
		}
	}
}

// fill writes bytes one at a time until there is no room for more, and returns how many. room is the size of the
// socket's send buffer, unless it is 0.
func fill(t *testing.T, c net.Conn, b []byte, room int) (n int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var full error
	err = raw.Control(func(fd uintptr) {
		if room > 0 {
			full = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, room)
		}
		for n < len(b) && full == nil {
			if _, full = syscall.Write(int(fd), b[n:n+1]); full == nil {
				n++
			}
		}
	})
	if err != nil || full != syscall.EAGAIN {
		t.Fatalf("after %d bytes: %v, %v; want a full socket", n, err, full)
	}
	return n
}

// TestFirstBytesBeyondTheReceiveBuffer: where the receive buffer is smaller than a client's first bytes, so that its window closes before
// they are there, they are taken out, and the client is served, however they are cut.
func TestFirstBytesBeyondTheReceiveBuffer(t *testing.T) {
	t.Parallel()

	hello := largeHello(t, "full.example")
	long := []byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 7000) + "\r\nHost: full.example\r\n\r\n")
	for name, x := range map[string]struct {
		sent []byte
		worker.Preread
	}{
		"hello":       {hello, worker.Preread{Hello: true}},
		"first bytes": {long, worker.Preread{First: new(hosts)}},
		"look":        {hello, worker.Preread{}},
	} {
		for _, piece := range []int{1, 1000, len(x.sent)} {
			t.Run(fmt.Sprintf("%s by %d", name, piece), func(t *testing.T) {
				d := straight(echo(t))
				connect := d.next
				d.next = func(c *worker.Client, n int) worker.Step {
					if n == 1 && !x.Hello && x.First == nil {
						return worker.Step{Action: worker.Look, Need: len(x.sent), Most: len(x.sent)}
					}
					return connect(c, n)
				}
				x.Timeout = 20 * time.Second
				r := directed(t, d, func(c *setup, s *worker.Service) {
					s.Preread = x.Preread
					if err := syscall.SetsockoptInt(c.first.FD, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1); err != nil {
						t.Fatal(err)
					}
				})
				r.serve(t)
				c := r.dial(t)
				go func() {
					for part := range slices.Chunk(x.sent, piece) {
						if _, err := c.Write(part); err != nil {
							return
						}
					}
				}()
				mustRead(t, c, x.sent)
			})
		}
	}
}

// TestPrereadMemory: the bytes that are read of all clients whose first bytes drip are bounded together. A client for which there is no room is
// refused, those whose hellos come at once are served meanwhile, and what a client has taken is there for the next ones when it has left.
func TestPrereadMemory(t *testing.T) {
	t.Parallel()
	const room = 64 << 10
	r := directedOn(t, "unix", straight(echo(t)), func(c *setup, s *worker.Service) { // each piece is taken there
		c.PrereadMemory, s.Preread = room, worker.Preread{Hello: true, Timeout: time.Hour}
	})
	r.serve(t)
	refused := func() int64 { return r.Summary().Refused }
	hello := largeHello(t, "drip.example")
	for round := range 2 {
		before := refused()
		var clients []net.Conn
		for refused() == before {
			if len(clients) == room/len(hello)+1 {
				t.Fatalf("round %d: %d clients have had room", round, len(clients))
			}
			c := r.dial(t)
			clients = append(clients, c)
			most := r.taken() + int64(len(hello)-1)
			for piece := range slices.Chunk(hello[:len(hello)-1], 1000) {
				_, _ = c.Write(piece) // it may be refused
			}
			eventually(t, func() bool { return r.taken() >= most || refused() > before })
		}
		if len(clients) < 3 {
			t.Errorf("round %d: %d clients had no room", round, len(clients))
		}
		whole := helloOf(t, "usual.example")
		c := r.dial(t)
		mustWrite(t, c, whole)
		mustRead(t, c, whole)
		for _, c := range append(clients, c) {
			c.Close()
		}
		eventually(t, func() bool { return r.Active() == 0 })
	}
	if got := r.PrereadMemory(); got != 0 {
		t.Errorf("%d bytes are counted after the end of all clients", got)
	}
}

var (
	requests = firstbytes.New(firstbytes.Wants{Protocols: firstbytes.SetOf(firstbytes.HTTP1, firstbytes.SSH), Host: true})
	errDoubt = errors.New("in doubt")
)

// hosts decides by the host of a request.
type hosts struct{ silent atomic.Int64 }

func (*hosts) Max() int { return requests.Max() }

func (*hosts) Look(c *worker.Client, b []byte) (need int, err error) {
	need = requests.Look(b, &c.First)
	switch {
	case c.First.Host.Verdict == firstbytes.Yes, c.First.Is(firstbytes.SSH) == firstbytes.Yes:
		return 0, nil
	case need == 0:
		return 0, errDoubt
	}
	return need, nil
}

func (h *hosts) Silent(c *worker.Client) bool {
	c.First.Silent = true
	return h.silent.Add(1) > 1 // not the first time
}

// TestFirstBytesChange: a client that changes its first bytes between two looks is judged by what its endpoint gets.
func TestFirstBytesChange(t *testing.T) {
	t.Parallel()

	ln := listenOn(t)
	judged := make(chan string, 1)
	d := straight(ln.Addr().String())
	next := d.next
	d.next = func(c *worker.Client, n int) worker.Step {
		judged <- c.First.Path.Value
		return next(c, n)
	}
	r := directed(t, d, func(_ *setup, s *worker.Service) {
		s.Preread = worker.Preread{First: new(hosts), Timeout: time.Minute}
	})
	r.serve(t)
	c := r.dial(t)
	change := sockets.SendPages(t, c.(syscall.Conn), []byte("GET /public HTTP/1.1\r\nHost: a"))
	eventually(t, func() bool { return r.peeks() > 0 })
	change([]byte("GET /secret"))
	mustWrite(t, c, []byte("\r\n\r\n"))
	e := accept(t, ln)
	path := <-judged
	mustRead(t, e, []byte("GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"))
}

// TestLeavesFirstBytes: the endpoint gets the first bytes of a client of a unix socket that has closed meanwhile, also if they came in pieces.
func TestLeavesFirstBytes(t *testing.T) {
	t.Parallel()

	ln := listenOn(t)
	wakers := make(chan worker.Waker, 1)
	d := &director{next: func(c *worker.Client, n int) worker.Step {
		if n == 1 {
			wakers <- c.Waker()
			return worker.Step{Action: worker.Park, Timeout: time.Minute}
		}
		return connectTo(ln.Addr().String())
	}}
	r := directedOn(t, "unix", d, func(_ *setup, s *worker.Service) {
		s.Preread = worker.Preread{First: new(hosts), Timeout: time.Minute}
	})
	r.serve(t)
	c := r.dial(t)
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	mustWrite(t, c, []byte(request[:10]))
	eventually(t, func() bool { return r.peeks() > 0 })
	mustWrite(t, c, []byte(request[10:]))
	waker := <-wakers
	c.Close()
	r.Turn()
	waker.Wake()
	mustRead(t, accept(t, ln), []byte(request))
}

// TestSilenceBehindHeader: a client that says nothing behind its PROXY header is silent, however the header comes, and one that
// has begun to say something is not.
func TestSilenceBehindHeader(t *testing.T) {
	t.Parallel()

	by := new(hosts)
	by.silent.Store(1) // so that there is a route for silent clients
	first := worker.Preread{First: by, Silence: 3 * time.Second}
	hello := worker.Preread{Hello: true, AnyHello: true, Timeout: 3 * time.Second}
	for name, x := range map[string]struct {
		preread worker.Preread
		pieces  []string
		behind  string
	}{
		"first bytes":           {first, []string{"PROXY UNKNOWN\r\n"}, ""},
		"first bytes, in parts": {first, []string{"PROXY ", "UNKNOWN", "\r", "\n"}, ""},
		"hello":                 {hello, []string{"PROXY UNKNOWN\r\n"}, ""},
		"hello, in parts":       {hello, []string{"PROXY ", "UNKNOWN", "\r", "\n"}, ""},
		"hello, begun":          {hello, []string{"PROXY ", "UNKNOWN", "\r", "\n"}, "\x16\x03"},
	} {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(network+" "+name, func(t *testing.T) {
				var clock atomic.Int64
				clock.Store(1)
				var identified atomic.Bool
				r := directedOn(t, network, straight(echo(t)), func(c *setup, s *worker.Service) {
					c.Now, s.Preread = clock.Load, x.preread
					s.Preread.Header = new(proxyproto.Policy)
					s.Admitter = &counted{source: func(*worker.Client) error { identified.Store(true); return nil }}
				})
				r.serve(t)
				c := r.dial(t)
				eventually(t, func() bool { return r.Active() == 1 })
				for _, piece := range x.pieces {
					mustWrite(t, c, []byte(piece))
					r.Turn()
				}
				eventually(t, identified.Load)
				r.Turn() // the time for its first bytes has begun
				if before := r.peeks(); x.behind != "" {
					mustWrite(t, c, []byte(x.behind))
					eventually(t, func() bool { return r.peeks() > before })
				}
				clock.Add(int64(4 * time.Second))
				r.Wake()
				r.Turn()
				if x.behind == "" {
					talk(t, c)
				} else {
					eventually(t, func() bool { return r.Summary().Refused == 1 })
				}
			})
		}
	}
}

// The bytes that a peek has shown go with the header, whatever comes after them and
// whenever. Every byte is there once, and counted once.
func TestHelloWithPreface(t *testing.T) {
	t.Parallel()

	hello := helloOf(t, "ahead.example")
	large := bytes.Repeat([]byte("x"), 100_000)
	for name, x := range map[string]struct {
		with, before, after []byte // bytes with the hello, before the endpoint is known, and then
		header              int
		ends                bool // the client ends before the endpoint is known
		engine              relay.Engine
	}{
		"alone":          {header: 28, engine: relay.EngineCopy},
		"little behind":  {header: 28, with: []byte("early data"), engine: relay.EngineAuto},
		"much behind":    {header: 28, with: large, after: []byte("more"), engine: relay.EngineAuto},
		"more meanwhile": {header: 28, with: []byte("a"), before: large, after: []byte("z"), engine: relay.EngineAuto},
		"an end":         {header: 28, before: []byte("last"), ends: true, engine: relay.EngineCopy},
		"only an end":    {header: 28, ends: true, engine: relay.EngineCopy},
		"long header":    {header: 16 << 20, before: []byte("b"), after: []byte("c"), engine: relay.EngineAuto},
		"spliced":        {header: 28, with: []byte("a"), before: []byte("b"), after: []byte("c"), engine: relay.EngineSplice},
	} {
		t.Run(name, func(t *testing.T) {
			ln := listenOn(t)
			wakers := make(chan worker.Waker, 1)
			d := &director{header: bytes.Repeat([]byte("p"), x.header)}
			d.next = func(c *worker.Client, n int) worker.Step {
				if n == 1 {
					wakers <- c.Waker()
					return worker.Step{Action: worker.Park, Timeout: time.Minute}
				}
				step := connectTo(ln.Addr().String())
				step.ProxyHeader = true
				return step
			}
			r := directed(t, d, func(c *setup, s *worker.Service) {
				s.Preread = worker.Preread{Hello: true, Timeout: time.Minute}
				c.Relay = relayOf(t, x.engine)
			})
			r.serve(t)
			c := r.dial(t).(*net.TCPConn)
			mustWrite(t, c, append(bytes.Clone(hello), x.with...))
			waker := <-wakers
			mustWrite(t, c, x.before)
			if x.ends {
				c.CloseWrite()
			}
			r.Turn()
			waker.Wake()
			e := accept(t, ln)
			mustRead(t, e, d.header)
			mustRead(t, e, hello)
			mustWrite(t, e, []byte("answer")) // what is behind the hello waits for it
			mustRead(t, e, append(bytes.Clone(x.with), x.before...))
			mustRead(t, c, []byte("answer"))
			if !x.ends {
				mustWrite(t, c, x.after)
				c.CloseWrite()
			}
			mustRead(t, e, x.after)
			if rest, err := io.ReadAll(e); err != nil || len(rest) > 0 {
				t.Errorf("%d bytes too many, %v", len(rest), err)
			}
			e.Close()
			eventually(t, func() bool { return r.Active() == 0 })
			moved := r.Summary().Totals.ClientToEndpoint
			if want := len(hello) + len(x.with) + len(x.before) + len(x.after); moved.Spliced+moved.Copied != int64(want) {
				t.Errorf("%+v were moved, and %d sent", moved, want)
			}
			if x.engine == relay.EngineSplice && moved.Copied != int64(len(hello)) { // it was judged
				t.Errorf("%d bytes were copied", moved.Copied)
			}
		})
	}
}

// If an endpoint resets before it has a header and the bytes that go with it, those bytes
// go to the next endpoint.
func TestHelloSurvivesAnEndpoint(t *testing.T) {
	t.Parallel()

	hello := helloOf(t, "again.example")
	bad, good := listenOn(t), listenOn(t)
	go func() {
		if e, err := bad.Accept(); err == nil {
			reset(e)
		}
	}()
	d := &director{header: make([]byte, 32<<20)} // so that there is no room for the bytes after it
	d.next = func(_ *worker.Client, n int) worker.Step {
		step := connectTo(good.Addr().String())
		if n == 1 {
			step = connectTo(bad.Addr().String())
		}
		step.ProxyHeader = true
		return step
	}
	r := directed(t, d, func(_ *setup, s *worker.Service) {
		s.Preread = worker.Preread{Hello: true, Timeout: time.Minute}
	})
	r.serve(t)
	c := r.dial(t)
	mustWrite(t, c, hello)
	e := accept(t, good)
	mustRead(t, e, d.header)
	mustRead(t, e, hello)
	if failed := d.failed(); len(failed) != 1 {
		t.Errorf("%v failed", failed)
	}
}

// accept takes the next connection of a listener, until the test ends.
func accept(t *testing.T, ln net.Listener) net.Conn {
	t.Helper()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(condition.Patience))
	return c
}

// listenOn listens on TCP until the test ends.
func listenOn(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// relayOf makes a relay for a test.
func relayOf(t *testing.T, engine relay.Engine) *relay.Relay {
	t.Helper()
	pipequota.Share(t)
	rel, err := relay.New(&relay.Config{Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rel.Close() })
	return rel
}
