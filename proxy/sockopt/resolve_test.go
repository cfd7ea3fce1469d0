package sockopt

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// TestBothFailed: the error of both families is said once if it is the same but for the port from which the name server was asked.
func TestBothFailed(t *testing.T) {
	t.Parallel()

	of := func(text string) error { return &net.DNSError{Err: text, Name: "a.test", Server: "10.0.0.1:53"} }
	four, six := of("read udp 10.0.0.2:40001->10.0.0.1:53: i/o timeout"), of("read udp 10.0.0.2:40002->10.0.0.1:53: i/o timeout")
	if err := bothFailed(four, six); strings.Count(err.Error(), "timeout") != 1 {
		t.Error(err)
	}
	if err := bothFailed(four, of("server misbehaving")); !errors.Is(err, four) || !strings.Contains(err.Error(), "misbehaving") {
		t.Error(err)
	}
}

// TestPatience: a name server that is silent costs the first lookup a second, and has more time when it is asked once more, unless
// another one answers.
func TestPatience(t *testing.T) {
	t.Parallel()

	r, silent := newResolver(), os.ErrDeadlineExceeded
	for _, step := range []struct {
		server string
		err    error
		one    time.Duration // the patience with server one afterwards
	}{{"two", nil, serverPatience}, {"one", silent, silentPatience}, {"two", silent, againPatience}, {"one", nil, serverPatience}} {
		if r.noteServer(step.server, step.err); r.patience("one") != step.one {
			t.Errorf("%+v: %v", step, r.patience("one"))
		}
	}
	if serverPatience > time.Second || againPatience < 2*time.Second {
		t.Error("a silent server costs more than a second, or a slow one is never heard")
	}
}

// TestLastAddresses: while the name servers fail or are silent, a host has the addresses that it had last, for a day, and is looked up again in the
// background; a host that never had any has none.
func TestLastAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		at, failing, silent, asked := "192.0.2.1", false, false, 0
		r := newResolver()
		r.lookup = func(ctx context.Context, network, host string) ([]netip.Addr, error) {
			if network == "ip6" {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			mu.Lock()
			asked++
			mute, fails, ip := silent, failing || host != "a.test", netip.MustParseAddr(at)
			mu.Unlock()
			if mute {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if fails {
				return nil, &net.DNSError{Err: "server misbehaving", Name: host}
			}
			return []netip.Addr{ip}, nil
		}
		set := func(ip string, fails, mute bool) {
			mu.Lock()
			defer mu.Unlock()
			at, failing, silent, asked = ip, fails, mute, 0
		}
		within := func(most time.Duration, want string) {
			t.Helper()
			began := time.Now()
			ips, err := r.resolveOrLast(t.Context(), "a.test")
			if err != nil || len(ips) != 1 || ips[0].String() != want || time.Since(began) > most {
				t.Errorf("%v, %v after %v, want %s within %v", ips, err, time.Since(began), want, most)
			}
		}
		within(time.Second, "192.0.2.1")
		set("192.0.2.2", false, false)
		within(time.Second, "192.0.2.2")
		if _, err := r.resolveOrLast(t.Context(), "b.test"); err == nil {
			t.Error("a host without an address has one")
		}

		set("192.0.2.3", true, false)
		within(time.Second, "192.0.2.2")
		if r.known["a.test"].failed == nil {
			t.Error("the failure is not known")
		}
		for range 100 {
			within(0, "192.0.2.2")
		}
		time.Sleep(1100 * time.Millisecond)
		within(0, "192.0.2.2") // and looked up once more
		synctest.Wait()
		mu.Lock()
		if asked != 2 {
			t.Errorf("asked %d times, want 2", asked)
		}
		mu.Unlock()

		set("192.0.2.3", false, false)
		time.Sleep(1100 * time.Millisecond)
		within(0, "192.0.2.2")
		synctest.Wait()
		within(time.Second, "192.0.2.3")

		set("192.0.2.4", false, true)
		within(lastPatience, "192.0.2.3")
		within(0, "192.0.2.3")
		time.Sleep(lastFor)
		set("192.0.2.4", true, false)
		if ips, err := r.resolveOrLast(t.Context(), "a.test"); err == nil {
			t.Errorf("%v after a day", ips)
		}
		time.Sleep(time.Minute) // lookups that nobody waits for
	})
}

// TestManyAddresses: of an answer with thousands of addresses the first ones are used.
func TestManyAddresses(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answers := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Compress = true
		if m.Truncated = w.LocalAddr().Network() == "udp"; !m.Truncated {
			m.Answer = append(m.Answer, &dns.CNAME{Hdr: dns.RR_Header{Name: "many.test.", Rrtype: dns.TypeCNAME, Class: dns.ClassINET}, Target: "a.test."})
			for i := range 3500 {
				m.Answer = append(m.Answer, &dns.A{
					Hdr: dns.RR_Header{Name: "a.test.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(10, 0, byte(i>>8), byte(i)),
				})
			}
		}
		_ = w.WriteMsg(m)
	})
	for _, s := range []*dns.Server{{Listener: l, Handler: answers}, {PacketConn: packets, Handler: answers}} {
		go s.ActivateAndServe()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	r := newResolver()
	names := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if network == "udp" {
			return r.dial(ctx, network, packets.LocalAddr().String())
		}
		return r.dial(ctx, network, l.Addr().String())
	}}
	ips, err := names.LookupNetIP(t.Context(), "ip4", "many.test")
	if err != nil || len(ips) != mostAddresses {
		t.Errorf("%d addresses, %v", len(ips), err)
	}
}
