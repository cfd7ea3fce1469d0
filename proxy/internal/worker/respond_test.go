package worker_test

import (
	"bytes"
	"cmp"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// responding returns a director whose searches respond.
func responding(b []byte, timeout time.Duration) *director {
	return &director{next: func(*worker.Client, int) worker.Step {
		return worker.Step{Action: worker.Respond, Bytes: b, Timeout: timeout}
	}}
}

// A response arrives whole and ends properly, whatever unread bytes the client has sent,
// and whatever its size.
func TestRespond(t *testing.T) {
	t.Parallel()

	for name, size := range map[string]int{"small": 20, "large": 8 << 20, "none": 0} {
		t.Run(name, func(t *testing.T) {
			response := bytes.Repeat([]byte("sorry "), size/6)
			r := directed(t, responding(response, time.Minute), nil)
			r.serve(t)
			c := r.dial(t)
			mustWrite(t, c, make([]byte, 100_000))
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, response) {
				t.Errorf("got %d bytes of %d, %v", len(got), len(response), err)
			}
			if r.Active() != 1 {
				t.Error("it was closed before the client has ended")
			}
			mustWrite(t, c, make([]byte, 100_000)) // no reset answers it
			r.Turn()
			c.Close()
			eventually(t, func() bool { return r.Active() == 0 })
			if sum := r.Summary(); sum.Refused != 0 {
				t.Errorf("the summary is %+v", sum)
			}
		})
	}
}

// One that neither reads nor ends has its time.
func TestRespondToOneWhoStays(t *testing.T) {
	t.Parallel()

	for name, size := range map[string]int{"not read": 32 << 20, "not ended": 10} {
		t.Run(name, func(t *testing.T) {
			var clock atomic.Int64
			clock.Store(1)
			r := directed(t, responding(make([]byte, size), 7*time.Second), func(c *worker.Config, _ *worker.Service) { c.Now = clock.Load })
			r.serve(t)
			r.dial(t)
			eventually(t, func() bool { return r.Active() == 1 })
			r.Turn()
			clock.Add(int64(6 * time.Second))
			r.Wake()
			r.Turn()
			if r.Active() != 1 {
				t.Fatal("it was closed before its time")
			}
			clock.Add(int64(2 * time.Second))
			r.Wake()
			eventually(t, func() bool { return r.Active() == 0 })
		})
	}
}

// A header comes before the client's bytes, also if the endpoint takes it bit by bit or
// the client has sent nothing yet.
func TestPreface(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]struct {
		network string
		size    int
		early   string
	}{
		"short": {"unix", 28, "hello"}, "long": {"unix", 4 << 20, "hello"},
		"tcp": {"tcp", 28, "hello"}, "tcp, long": {"tcp", 16 << 20, "hello"}, "silent": {"tcp", 28, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at := loop.Address{AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}
			if x.network == "unix" {
				at.Path = filepath.Join(t.TempDir(), "endpoint")
			}
			ln, err := net.Listen(x.network, cmp.Or(at.Path, "127.0.0.1:0"))
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			if x.network == "tcp" {
				at.AddrPort = ln.Addr().(*net.TCPAddr).AddrPort()
			}
			d := &director{header: bytes.Repeat([]byte("PROXY! "), x.size/7), next: func(*worker.Client, int) worker.Step {
				return worker.Step{Action: worker.Connect, Address: at, ProxyHeader: true}
			}}
			r := directed(t, d, func(_ *worker.Config, s *worker.Service) { s.Preread.Data = x.early != "" })
			r.serve(t)
			c := r.dial(t)
			mustWrite(t, c, []byte(x.early))
			e, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			e.SetDeadline(time.Now().Add(time.Minute))
			mustRead(t, e, append(d.header, x.early...))
			for range 3 {
				mustWrite(t, c, []byte("request"))
				mustRead(t, e, []byte("request"))
				mustWrite(t, e, []byte("answer"))
				mustRead(t, c, []byte("answer"))
			}
		})
	}
}

// A client that leaves while the header is written leaves nothing behind. Nor does an
// endpoint that leaves, or takes nothing; that failure is reported to the search.
func TestPrefaceThatIsNotTaken(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]struct {
		happens func(client, endpoint net.Conn, clock *atomic.Int64)
		failed  bool
	}{
		"client leaves":   {func(c, _ net.Conn, _ *atomic.Int64) { reset(c) }, false},
		"endpoint resets": {func(_, e net.Conn, _ *atomic.Int64) { reset(e) }, true},
		"time is over":    {func(_, _ net.Conn, clock *atomic.Int64) { clock.Add(int64(6 * time.Second)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			d := &director{header: make([]byte, 32<<20), next: func(_ *worker.Client, n int) worker.Step {
				if n > 1 {
					return worker.Step{Action: worker.GiveUp}
				}
				step := connectTo(ln.Addr().String())
				step.ProxyHeader = true
				return step
			}}
			var clock atomic.Int64
			clock.Store(1)
			r := directed(t, d, func(c *worker.Config, _ *worker.Service) { c.Now = clock.Load })
			r.serve(t)
			c := r.dial(t)
			e, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if _, err := io.ReadFull(e, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			r.Turn()
			x.happens(c, e, &clock)
			r.Wake()
			eventually(t, func() bool { return r.Active() == 0 })
			failures := d.failed()
			if (len(failures) > 0) != x.failed || d.joined.Load() != 0 {
				t.Errorf("failed by %v, joined %d", failures, d.joined.Load())
			}
		})
	}
}
