package discovery_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/penstock/penstock/proxy/discovery"
)

// of is a configuration that asks s for addresses.
func of(s *nameServer) discovery.DNSConfig {
	return discovery.DNSConfig{Name: "db.example", Port: 5432, Servers: []string{s.addr}, Timeout: patience}
}

func TestAddressesAreAskedAgainWhenTheirTimeIsOver(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2", "30 A 10.0.0.1")
	s.set("AAAA db.example.", "60 AAAA fd00::1")
	r := lookups(t, of(s))

	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.1:5432*1 10.0.0.2:5432*1 [fd00::1]:5432*1")
	r.pause(30 * time.Second) // the same answer changes nothing
	r.silence()
	equal(t, s.count("udp", "A db.example."), 2)
	equal(t, s.count("udp", "AAAA db.example."), 1)

	s.set("A db.example.", "30 A 10.0.0.3", "30 A 10.0.0.1")
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.1:5432*1 10.0.0.3:5432*1 [fd00::1]:5432*1")
	status := r.source.Status()
	if status.Err != nil || status.Stale || status.Endpoints != 3 || status.Kind != "dns" || status.From != "A+AAAA db.example" ||
		!status.Next.After(status.Confirmed) || status.Changed.IsZero() {
		t.Errorf("status %+v", status)
	}
}

func TestOneFamily(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	s.set("AAAA db.example.", "30 AAAA fd00::1")
	for kind, want := range map[string]string{"A": "10.0.0.2:5432*1", "AAAA": "[fd00::1]:5432*1", "aaaa": "[fd00::1]:5432*1"} {
		cfg := of(s)
		cfg.Type = kind
		r := lookups(t, cfg)
		r.pause(30 * time.Second)
		equal(t, r.told(), want)
	}
}

func TestTimeToLiveIsBounded(t *testing.T) {
	for _, c := range []struct {
		name      string
		ttl       string
		random    float64
		low, high time.Duration
	}{
		{"none", "0", 0, time.Second, time.Second},
		{"short and spread", "0", 0.999, time.Second, 1100 * time.Millisecond},
		{"within", "30", 0, 30 * time.Second, 30 * time.Second},
		{"within and spread", "30", 0.5, 31500 * time.Millisecond, 31500 * time.Millisecond},
		{"long", "86400", 0, 54 * time.Second, 54 * time.Second},
		{"long and spread", "86400", 0.999, 59 * time.Second, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.set("A db.example.", c.ttl+" A 10.0.0.2")
			cfg := of(s)
			cfg.Type, cfg.MaxTTL, cfg.Random = "A", time.Minute, func() float64 { return c.random }
			r := lookups(t, cfg)
			if d := r.again(); d < c.low || d > c.high {
				t.Errorf("it is used for %v, want from %v to %v", d, c.low, c.high)
			}
		})
	}
}

func TestAliases(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "60 CNAME a.example.", "a.example. 5 CNAME B.Example.", "b.example. 90 A 10.0.0.7")
	cfg := of(s)
	cfg.Type = "A"
	r := lookups(t, cfg)
	r.pause(5 * time.Second) // the smallest one of the alias chain and the records
	equal(t, r.told(), "10.0.0.7:5432*1")

	// A server that does not resolve the alias.
	s.set("A db.example.", "7 CNAME elsewhere.example.")
	s.set("A elsewhere.example.", "60 A 10.0.0.8")
	s.be(func(s *nameServer) { s.noSOA = true })
	r.pause(7 * time.Second)
	equal(t, r.told(), "10.0.0.8:5432*1")

	s.set("A db.example.", "60 CNAME a.example.", "a.example. 5 CNAME db.example.")
	r.again()
	r.silence()
	if err := r.source.Status().Err; err == nil || !strings.Contains(err.Error(), "aliases") {
		t.Errorf("error %v, want one about aliases", err)
	}
}

func TestTruncatedAnswersAreAskedForByTCP(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", addressRecords(500, 30)...)
	cfg := of(s)
	cfg.Type = "A"
	r := lookups(t, cfg)
	r.pause(30 * time.Second)
	if n := strings.Count(r.told(), ":5432"); n != 500 {
		t.Errorf("%d addresses, want 500", n)
	}
	equal(t, s.count("udp", "A db.example."), 1)
	equal(t, s.count("tcp", "A db.example."), 1)
}

func TestEDNS0(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", addressRecords(50, 30)...) // more than 512 bytes, less than 1232
	cfg := of(s)
	cfg.Type = "A"
	r := lookups(t, cfg)
	r.pause(30 * time.Second)
	if n := strings.Count(r.told(), ":5432"); n != 50 {
		t.Errorf("%d addresses, want 50", n)
	}
	equal(t, s.count("udp", "A db.example."), 1)
	equal(t, s.count("tcp", "A db.example."), 0)

	// A server without EDNS0 is asked without.
	s.be(func(s *nameServer) { s.plain = true })
	s.set("A db.example.", "30 A 10.0.0.9")
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.9:5432*1")
	equal(t, s.count("udp", "A db.example."), 2)
}

func TestFailingServersChangeNothing(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	cfg := of(s)
	cfg.Type = "A"
	r := lookups(t, cfg)
	r.pause(30 * time.Second)
	r.told()

	for _, code := range []int{dns.RcodeServerFailure, dns.RcodeRefused} {
		s.be(func(s *nameServer) { s.rcode[""] = code })
		for _, want := range []float64{0.5, 1, 2, 4, 8, 15, 15, 15} { // half of the bound: Random is 0
			r.pause(time.Duration(want * float64(time.Second)))
			r.silence()
		}
		status := r.source.Status()
		if status.Err == nil || !strings.Contains(status.Err.Error(), dns.RcodeToString[code]) || !status.Stale ||
			status.Endpoints != 1 || status.Failures < 8 {
			t.Errorf("status %+v", status)
		}
		s.be(func(s *nameServer) { s.rcode[""] = dns.RcodeSuccess })
		r.pause(30 * time.Second)
		r.silence()
		if status := r.source.Status(); status.Err != nil || status.Stale || status.Failures != 0 {
			t.Errorf("status %+v", status)
		}
	}
	equal(t, r.logged("DNS lookup failed, keeping current endpoints"), 2)
	equal(t, r.logged("DNS works again"), 2)
}

func TestNothingIsToldBeforeTheFirstAnswer(t *testing.T) {
	s := newServer(t)
	s.be(func(s *nameServer) { s.rcode[""] = dns.RcodeServerFailure })
	r := lookups(t, of(s))
	r.pause(500 * time.Millisecond)
	r.silence()
	if status := r.source.Status(); status.Err == nil || status.Stale {
		t.Errorf("status %+v", status)
	}
	s.be(func(s *nameServer) { s.rcode[""] = dns.RcodeSuccess })
	s.set("A db.example.", "30 A 10.0.0.2")
	r.again()
	equal(t, r.told(), "10.0.0.2:5432*1")
}

func TestOneFamilyFails(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	s.set("AAAA db.example.", "30 AAAA fd00::1")
	r := lookups(t, of(s))
	r.pause(30 * time.Second)
	r.told()
	s.set("A db.example.", "30 A 10.0.0.3")
	s.be(func(s *nameServer) { s.rcode["AAAA db.example."] = dns.RcodeServerFailure })
	r.pause(500 * time.Millisecond)
	equal(t, r.told(), "10.0.0.3:5432*1 [fd00::1]:5432*1")
	if status := r.source.Status(); status.Err == nil || !status.Stale {
		t.Errorf("status %+v", status)
	}
}

func TestServersAreAskedInTurn(t *testing.T) {
	dead, second := newServer(t), newServer(t)
	for _, s := range []*nameServer{dead, second} {
		s.set("A db.example.", "30 A 10.0.0.2")
	}
	dead.be(func(s *nameServer) { s.silent = true })
	cfg := of(dead)
	cfg.Type, cfg.Timeout, cfg.Servers = "A", 50*time.Millisecond, append(cfg.Servers, second.addr)
	r := lookups(t, cfg)
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.2:5432*1")
	r.pause(30 * time.Second)
	equal(t, dead.count("udp", "A db.example."), 1) // the one that answers is asked first from then on

	dead.be(func(s *nameServer) { s.silent = false })
	dead.set("A db.example.", "30 A 10.0.0.3")
	second.be(func(s *nameServer) { s.silent = true })
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.3:5432*1")
	dead.be(func(s *nameServer) { s.silent = true })
	r.again()
	var timeout interface{ Timeout() bool }
	if err := r.source.Status().Err; !errors.As(err, &timeout) || !timeout.Timeout() || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want a timeout in one line", err)
	}
	equal(t, dead.count("udp", "A db.example."), 3) // a datagram may have been lost
}

func TestServerThatIsNotThere(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	gone, stream := listenBoth(t)
	gone.Close()
	stream.Close()
	cfg := of(s)
	cfg.Type, cfg.Servers = "A", []string{gone.LocalAddr().String(), s.addr}
	r := lookups(t, cfg)
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.2:5432*1")
}

func TestRepliesToOtherQuestionsAreNone(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	s.be(func(s *nameServer) { s.lies = true })
	cfg := of(s)
	cfg.Type = "A"
	r := lookups(t, cfg)
	r.again()
	r.silence()
	if err := r.source.Status().Err; err == nil || !strings.Contains(err.Error(), "another question") {
		t.Errorf("error %v", err)
	}
}
