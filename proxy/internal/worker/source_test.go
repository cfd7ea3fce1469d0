package worker_test

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A client of TCP without an address is reset before its bytes are looked at and before any
// rule is checked. It is counted by that reason, and takes no place.
func TestClientWithoutSource(t *testing.T) {
	t.Parallel()

	for name, p := range map[string]worker.Preread{
		"plain":          {},
		"header":         {Header: new(proxyproto.Policy)},
		"header of some": {Header: &proxyproto.Policy{From: source.NewSet([]source.Rule{source.All()})}},
		"hello":          {Hello: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, d := new(counted), straight(echo(t))
			r := directed(t, d, func(c *worker.Config, s *worker.Service) { c.Loops, s.Preread, s.Admitter = 1, p, a })
			r.serve(t)
			c, far := sockets.TCPPair(t)
			mustWrite(t, c, []byte("PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\nhello"))
			fd, err := loop.Take(far)
			if err != nil {
				t.Fatal(err)
			}
			r.Accepted(fd, netip.AddrPort{})
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client gets %v, want a reset", err)
			}
			eventually(t, func() bool { return a.asked.Load() == 1 && r.Active() == 0 })
			sum := r.Summary()
			if sum.Refused != 1 || sum.Refusals[worker.RefusedNoSource] != 1 || worker.RefusedNoSource.String() != "no_source" {
				t.Errorf("refused %v", sum.Refusals)
			}
			if r.causes()[0] != source.ErrUnknown {
				t.Errorf("the cause is %v", r.causes())
			}
			if a.in.Load() > 0 || a.left.Load() > 0 || d.begun.Load() > 0 {
				t.Error("it was admitted, or served")
			}
		})
	}
}

// A unix client that the policy does not name is served as it is, with the header that it
// has sent. A named client has the source in its header. If the header has none, it has its
// own source.
func TestHeadersOverUnix(t *testing.T) {
	t.Parallel()

	const known, unknown = "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n", "PROXY UNKNOWN\r\n"
	local := string(proxyproto.Append(nil, 2, &proxyproto.Connection{Local: true}))
	self := source.Unix(source.Credentials{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), PID: int32(os.Getpid())})
	named := source.NewSet([]source.Rule{source.UnixUser(uint32(os.Geteuid()))})
	others := source.NewSet([]source.Rule{source.Prefix(netip.MustParsePrefix("0.0.0.0/0")), source.UnixUser(uint32(os.Geteuid()) + 1)})
	for name, x := range map[string]struct {
		from       *source.Set
		sent, rest string
		want       source.Source
	}{
		"everybody": {nil, known + "hello", "hello", source.TCP(netip.MustParseAddrPort("192.0.2.1:4711"))},
		"named":     {named, known + "hello", "hello", source.TCP(netip.MustParseAddrPort("192.0.2.1:4711"))},
		"unknown":   {named, unknown + "hello", "hello", self},
		"local":     {named, local + "hello", "hello", self},
		"not named": {others, known + "hello", known + "hello", self},
	} {
		t.Run(name, func(t *testing.T) {
			a := new(counted)
			r := newRigAt(t, "unix", sockets.Dir(t)+"/proxy", func(c *worker.Config) {
				s := serviceOf(t, straight(echo(t)))
				s.Admitter, s.Preread.Header = a, &proxyproto.Policy{From: x.from}
				c.Listeners[0].Service = s
			})
			r.serve(t)
			c := r.dial(t)
			mustWrite(t, c, []byte(x.sent))
			mustRead(t, c, []byte(x.rest))
			a.mu.Lock()
			defer a.mu.Unlock()
			if len(a.sources) != 1 || a.sources[0] != x.want {
				t.Errorf("admitted as %v, want %v", a.sources, x.want)
			}
		})
	}
}
