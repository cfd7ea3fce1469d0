package worker_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

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
// kept to any more. Then they are taken, and the hello arrives all the same, with a header
// before it or behind it, and more behind it, for a number of looks that does not grow with
// the number of bytes.
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
func (x *drip) arrive(t *testing.T) (taken int64) {
	const clients = 4
	at := "127.0.0.1:0"
	if x.network == "unix" {
		at = sockets.Dir(t) + "/proxy"
	}
	ln := listenOn(t)
	r := newRigAt(t, x.network, at, func(c *worker.Config) {
		d := straight(ln.Addr().String())
		connect := d.next
		d.header, d.next = []byte(x.proxyHeader), func(of *worker.Client, n int) worker.Step {
			step := connect(of, n)
			step.ProxyHeader = x.proxyHeader != ""
			if of.Hello.ServerName != "drip.example" {
				t.Errorf("the hello's name is %q", of.Hello.ServerName)
			}
			return step
		}
		s := serviceOf(t, d)
		s.Preread = worker.Preread{Hello: true, Timeout: time.Minute}
		if x.header != "" {
			s.Preread.Header = &proxyproto.Policy{}
		}
		c.Listeners[0].Service, c.Relay = s, relayOf(t, x.engine)
	})
	r.serve(t)
	hello := largeHello(t, "drip.example")
	var conns []net.Conn
	for range clients {
		conns = append(conns, r.dial(t))
	}
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
	sum := r.Summary()
	for _, l := range sum.Loops {
		taken += l.Taken
	}
	if n := r.peeks(); n > clients*400 {
		t.Errorf("%d hellos of %d bytes were looked at %d times", clients, len(hello), n)
	}
	if moved := sum.Totals.ClientToEndpoint; moved.Copied+moved.Spliced != int64(clients*(len(hello)+len("behind"))) {
		t.Errorf("%+v were moved", moved)
	}
	return taken
}

// The bytes that were taken are handed over with the client.
func TestHandoverOfADrip(t *testing.T) {
	t.Parallel()

	untilTaken(t, func() int64 { return handOverDrip(t) })
}

func handOverDrip(t *testing.T) (taken int64) {
	x := newHand(t, &tie{upstream: "u", endpoint: "e"})
	r := directed(t, x.director(), func(_ *worker.Config, s *worker.Service) {
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
	sum := r.Summary()
	return sum.Loops[0].Taken + sum.Loops[1].Taken
}
