package worker_test

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

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

const request = "GET / HTTP/1.1\r\nHost: drip.example\r\nX: " + "0123456789012345678901234567890123456789012345678901234567890123456789\r\n\r\n"

// recognising serves an echo by first bytes. The value is the host of the last client.
func recognising(t *testing.T, preread worker.Preread) (*rig, *director, *atomic.Value) {
	name, d := new(atomic.Value), straight(echo(t))
	connect := d.next
	d.next = func(c *worker.Client, n int) worker.Step {
		name.Store(c.First.Host.Value)
		return connect(c, n)
	}
	if preread.First == nil {
		preread.First = new(hosts)
	}
	r := directed(t, d, func(_ *worker.Config, s *worker.Service) { s.Preread = preread })
	r.serve(t)
	return r, d, name
}

// TestFirstBytesThatDrip: a request that comes a byte at a time has the properties of one that comes at once, and reaches the
// endpoint unchanged. It is looked at a few times, and taken then.
func TestFirstBytesThatDrip(t *testing.T) {
	t.Parallel()

	r, d, name := recognising(t, worker.Preread{Timeout: time.Minute})
	for _, piece := range []int{len(request), 1} {
		c := r.dial(t)
		for at := 0; at < len(request); at += piece {
			mustWrite(t, c, []byte(request[at:min(at+piece, len(request))]))
			r.Turn()
		}
		mustRead(t, c, []byte(request))
		talk(t, c)
		if got := name.Load(); got != "drip.example" {
			t.Errorf("the host is %q", got)
		}
	}
	if d.joined.Load() != 2 || r.Summary().Refused != 0 {
		t.Errorf("the summary is %+v", r.Summary())
	}
}

// TestFirstBytesOverUnix: the same without a low-water mark, and behind a PROXY header.
func TestFirstBytesOverUnix(t *testing.T) {
	t.Parallel()

	r := newRigAt(t, "unix", sockets.Dir(t)+"/proxy", func(c *worker.Config) {
		c.Listeners[0].Service = serviceOf(t, straight(echo(t)))
		c.Listeners[0].Service.Preread = worker.Preread{First: new(hosts), Header: &proxyproto.Policy{From: source.NewSet([]source.Rule{source.UnixClients()})}}
	})
	r.serve(t)
	c := r.dial(t)
	for _, b := range []byte("PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n" + request) {
		mustWrite(t, c, []byte{b})
	}
	mustRead(t, c, []byte(request))
}

// TestFirstBytesRefused: each reason for which first bytes decide nothing is counted as its own.
func TestFirstBytesRefused(t *testing.T) {
	t.Parallel()

	for name, x := range map[string]struct {
		sent string
		end  bool
		why  worker.Refusal
	}{
		"doubt":     {"GET /\r\n", false, worker.RefusedFirstBytes},
		"too long":  {"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", firstbytes.MaxHead), false, worker.RefusedFirstBytes},
		"late":      {"GET / HTTP/1.1\r\nHost: a", false, worker.RefusedTimeout},
		"cut short": {"GET / HTTP/1.1\r\nHost: a", true, worker.RefusedEnded},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _ := recognising(t, worker.Preread{Timeout: 200 * time.Millisecond})
			c := r.dial(t)
			_, _ = c.Write([]byte(x.sent))
			if x.end {
				_ = c.(*net.TCPConn).CloseWrite()
			}
			condition.Await(t, "it is refused", func() bool { return r.Summary().Refusals[x.why] == 1 })
		})
	}
}

// TestSilence: a client that says nothing is asked about once. If there is no route for that its bytes are waited for.
func TestSilence(t *testing.T) {
	t.Parallel()

	by := new(hosts)
	r, d, name := recognising(t, worker.Preread{First: by, Timeout: time.Minute, Silence: 20 * time.Millisecond})
	first := r.dial(t)
	condition.Await(t, "it is asked about", func() bool { return by.silent.Load() == 1 })
	second := r.dial(t)
	condition.Await(t, "another one is, too", func() bool { return by.silent.Load() == 2 })
	talk(t, second) // which has got to the endpoint before it said anything
	if d.joined.Load() != 1 || name.Load() != "" {
		t.Errorf("%d clients are joined, the host is %q", d.joined.Load(), name.Load())
	}
	mustWrite(t, first, []byte(request))
	mustRead(t, first, []byte(request))
}

// TestNoFirstBytes: where nothing depends on first bytes they are not looked at.
func TestNoFirstBytes(t *testing.T) {
	t.Parallel()

	r := directed(t, straight(echo(t)), nil)
	r.serve(t)
	c := r.dial(t)
	talk(t, c)
	if n := r.peeks(); n != 0 {
		t.Errorf("looked at %d times", n)
	}
}
