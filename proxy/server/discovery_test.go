package server_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// A zone holds the records of a name server on loopback.
type zone struct {
	mu      sync.Mutex
	records []string
	broken  bool
}

func (z *zone) set(records ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records = records
}

func (z *zone) fail(broken bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.broken = broken
}

// ServeDNS implements [dns.Handler].
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	answer := new(dns.Msg).SetReply(q)
	if z.broken {
		answer.SetRcode(q, dns.RcodeServerFailure)
	}
	for _, text := range z.records {
		rr, err := dns.NewRR(text)
		if err == nil && !z.broken && rr.Header().Name == q.Question[0].Name && rr.Header().Rrtype == q.Question[0].Qtype {
			answer.Answer = append(answer.Answer, rr)
		}
	}
	_ = w.WriteMsg(answer)
}

func (z *zone) serve(t *testing.T) (address string) {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan error, 1)
	s := &dns.Server{PacketConn: packets, Handler: z, NotifyStartedFunc: func() { close(started) }}
	go func() { ended <- s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return packets.LocalAddr().String()
}

// service is the SRV record of a server.
func service(t *testing.T, address string, priority int) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if _, e := strconv.Atoi(port); err != nil || e != nil {
		t.Fatal(address)
	}
	return fmt.Sprintf("_db._tcp.test. 1 IN SRV %d 1 %s one.test.", priority, port)
}

// TestDiscoveryByDNS: endpoints come from SRV records, those of a lower priority are backups, and
// a failing name server changes nothing.
func TestDiscoveryByDNS(t *testing.T) {
	t.Parallel()
	a, b := named(t, "a"), named(t, "b")
	host := "one.test. 1 IN A 127.0.0.1"
	z := new(zone)
	z.set(service(t, a, 1), service(t, b, 2), host)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, discover: {dns: {name: _db._tcp.test, servers: [%q], min_ttl: 100ms}}}]`, z.serve(t)))
	for range 4 {
		if got := whose(t, r.At("l")); got != "a" {
			t.Errorf("%s, want the primary", got)
		}
	}
	c := client(t, r.At("l"))
	line(t, c)
	z.set(service(t, b, 1), host)
	r.Until("clients get the new endpoint", func() bool { return whose(t, r.At("l")) == "b" })
	echoes(t, c, "draining")
	z.fail(true)
	r.Until("the failure is noticed", func() bool { return strings.Contains(r.Log.String(), "SERVFAIL") })
	if got := whose(t, r.At("l")); got != "b" {
		t.Error(got)
	}
}
