package worker_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

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
			r := directed(t, d, func(c *worker.Config, s *worker.Service) {
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
			e, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			e.SetDeadline(time.Now().Add(time.Minute))
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
			if x.engine == relay.EngineSplice && moved.Copied > 0 {
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
	r := directed(t, d, func(_ *worker.Config, s *worker.Service) {
		s.Preread = worker.Preread{Hello: true, Timeout: time.Minute}
	})
	r.serve(t)
	c := r.dial(t)
	mustWrite(t, c, hello)
	e, err := good.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.SetDeadline(time.Now().Add(time.Minute))
	mustRead(t, e, d.header)
	mustRead(t, e, hello)
	if failed := d.failed(); len(failed) != 1 {
		t.Errorf("%v failed", failed)
	}
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
