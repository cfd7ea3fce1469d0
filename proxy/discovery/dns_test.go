package discovery_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/discovery"
)

// of returns a configuration that asks s for addresses.
func of(s *nameServer) discovery.DNSConfig {
	return discovery.DNSConfig{Name: "db.example", Port: 5432, Servers: []string{s.addr}, Timeout: condition.Patience}
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
			r := addresses(t, s, func(cfg *discovery.DNSConfig) {
				cfg.MaxTTL, cfg.Random = time.Minute, func() float64 { return c.random }
			})
			if d := r.again(); d < c.low || d > c.high {
				t.Errorf("it is used for %v, want from %v to %v", d, c.low, c.high)
			}
		})
	}
}

func TestAliases(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "60 CNAME a.example.", "a.example. 5 CNAME B.Example.", "b.example. 90 A 10.0.0.7")
	r := addresses(t, s, nil)
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
	r.fails("aliases")
}

// TestEDNS0: answers of up to 1,232 bytes come by UDP, and longer answers by TCP.
func TestEDNS0(t *testing.T) {
	for n, stream := range map[int]int{50: 0, 500: 1} {
		s := newServer(t)
		s.set("A db.example.", addressRecords(n, 30)...)
		r := addresses(t, s, nil)
		r.pause(30 * time.Second)
		equal(t, strings.Count(r.told(), ":5432"), n)
		equal(t, s.count("udp", "A db.example."), 1)
		equal(t, s.count("tcp", "A db.example."), stream)
	}

	// A server without EDNS0 is asked without.
	s := newServer(t)
	s.be(func(s *nameServer) { s.plain = true })
	s.set("A db.example.", "30 A 10.0.0.9")
	r := addresses(t, s, nil)
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.9:5432*1")
	equal(t, s.count("udp", "A db.example."), 2)
}

func TestFailingServersChangeNothing(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	r := addresses(t, s, nil)
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
	equal(t, r.logged("the DNS lookup failed, and the current endpoints stay"), 2)
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
	equal(t, r.logged("the answers to the others are used"), 1)
}

// TestOneFamilyIsNotAnswered: the addresses of the other family do not wait until the servers have been asked twice.
func TestOneFamilyIsNotAnswered(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	s.be(func(s *nameServer) { s.rcode["AAAA db.example."] = none })
	cfg := of(s)
	cfg.Timeout = time.Second
	r := lookups(t, cfg)
	r.again()
	equal(t, r.told(), "10.0.0.2:5432*1")
	equal(t, s.count("udp", "AAAA db.example."), 1)
}

func TestServersAreAskedInTurn(t *testing.T) {
	dead, second := newServer(t), newServer(t)
	for _, s := range []*nameServer{dead, second} {
		s.set("A db.example.", "30 A 10.0.0.2")
	}
	dead.be(func(s *nameServer) { s.silent = true })
	r := addresses(t, dead, func(cfg *discovery.DNSConfig) {
		cfg.Timeout, cfg.Servers = 50*time.Millisecond, append(cfg.Servers, second.addr)
	})
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.2:5432*1")
	r.pause(30 * time.Second)
	equal(t, dead.count("udp", "A db.example."), 1) // from then on the server that answers is asked first

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
	equal(t, dead.count("udp", "A db.example."), 3) // it was asked again, because a datagram may have been lost
}

// TestSilentServersCostLittle: a server is asked once the one before it has been silent for a while, and not only when its time
// is over.
func TestSilentServersCostLittle(t *testing.T) {
	good := newServer(t)
	good.set("A db.example.", "30 A 10.0.0.2")
	r := addresses(t, good, func(cfg *discovery.DNSConfig) {
		cfg.Servers = nil
		for range 2 {
			silent := newServer(t)
			silent.be(func(s *nameServer) { s.silent = true })
			cfg.Servers = append(cfg.Servers, silent.addr)
		}
		cfg.Servers = append(cfg.Servers, good.addr) // each has as long as a test waits
	})
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.2:5432*1")
}

// TestServerThatRefersToOthers: a server that only says which servers to ask does not deny the name.
func TestServerThatRefersToOthers(t *testing.T) {
	lame, good := newServer(t), newServer(t)
	lame.be(func(s *nameServer) { s.refers = true })
	good.set("A db.example.", "30 A 10.0.0.2")
	r := addresses(t, lame, func(cfg *discovery.DNSConfig) { cfg.Servers = append(cfg.Servers, good.addr) })
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.2:5432*1")
}

func TestServerThatIsNotThere(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	gone, stream := listenBoth(t)
	gone.Close()
	stream.Close()
	r := addresses(t, s, func(cfg *discovery.DNSConfig) { cfg.Servers = []string{gone.LocalAddr().String(), s.addr} })
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.2:5432*1")
}

func TestRepliesToOtherQuestionsAreNone(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	s.be(func(s *nameServer) { s.lies = true })
	r := addresses(t, s, nil)
	r.again()
	r.silence()
	r.fails("another question")
}

func TestConfigurationsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		want string
		cfg  discovery.DNSConfig
	}{
		{"write a domain name", discovery.DNSConfig{Port: 1}},
		{"write a domain name", discovery.DNSConfig{Name: "db example", Port: 1}},
		{"write a domain name", discovery.DNSConfig{Name: strings.Repeat("x", 64) + ".example", Port: 1}},
		{"an address needs no DNS", discovery.DNSConfig{Name: "10.0.0.1", Port: 1}},
		{"write A, AAAA, A+AAAA or SRV", discovery.DNSConfig{Name: "db.example", Type: "MX", Port: 1}},
		{"leave port out", discovery.DNSConfig{Name: "db.example", Type: "SRV", Port: 1}},
		{"from 1 to 65535", discovery.DNSConfig{Name: "db.example", Port: 65536}},
		{"from 1 to 65535", discovery.DNSConfig{Name: "db.example"}},
		{"min_ttl or more", discovery.DNSConfig{Name: "db.example", Port: 1, MinTTL: time.Hour}},
		{"min_ttl or more", discovery.DNSConfig{Name: "db.example", Port: 1, MinTTL: -1}},
		{"write an IP address", discovery.DNSConfig{Name: "db.example", Port: 1, Servers: []string{"ns.example"}}},
		{"write an IP address", discovery.DNSConfig{Name: "db.example", Port: 1, Servers: []string{"10.0.0.1:0"}}},
	} {
		_, err := discovery.NewDNS(c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want one line with %q", c.cfg, err, c.want)
		}
	}
}

// TestResolvConf: the file is read again when it has changed.
func TestResolvConf(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	s := discovery.NewServers(conf)
	for _, step := range []struct{ text, want string }{
		{"search example\nnameserver 10.1.2.3\nnameserver fd00::53\n", "10.1.2.3:53 [fd00::53]:53"},
		{"nameserver 10.1.2.4\n", "10.1.2.4:53"},
		{"# none\n", "127.0.0.1:53"},
		{"", "127.0.0.1:53"}, // it is not there
		{"nameserver 10.1.2.5\n", "10.1.2.5:53"},
	} {
		if must(t, replace(conf, step.text)); step.text == "" {
			must(t, os.Remove(conf))
		}
		equal(t, strings.Join(s.Order(), " "), step.want)
	}
}

// TestManyNames: sources that share a limiter keep to its limit together, and spread their next questions.
func TestManyNames(t *testing.T) {
	const names, gate = 300, 8
	s := newServer(t)
	s.be(func(s *nameServer) { s.slow = 5 * time.Millisecond })
	shared := discovery.NewQueryLimiter(gate)
	rigs := make([]*rig, names)
	for i := range rigs {
		name := fmt.Sprintf("n%d.example", i)
		s.set("A "+name+".", fmt.Sprintf("30 A 10.0.%d.%d", i/250, i%250))
		rigs[i] = lookups(t, discovery.DNSConfig{
			Name: name, Type: "A", Port: 80, Servers: []string{s.addr}, Timeout: condition.Patience, Limiter: shared, Random: rand.Float64,
		})
	}
	next := map[time.Duration]bool{}
	for i, r := range rigs {
		next[r.again()] = true
		equal(t, r.told(), fmt.Sprintf("10.0.%d.%d:80*1", i/250, i%250))
	}
	s.be(func(s *nameServer) {
		if s.most > gate {
			t.Errorf("%d questions at once, want at most %d", s.most, gate)
		}
	})
	if len(next) < names*9/10 {
		t.Errorf("%d sources ask again at %d different times", names, len(next))
	}
}

// TestWatchEndsWhileItAsks: Watch ends without waiting for a server's timeout.
func TestWatchEndsWhileItAsks(t *testing.T) {
	s := newServer(t)
	s.be(func(s *nameServer) { s.silent = true })
	cfg := of(s)
	cfg.Limiter = discovery.NewQueryLimiter(1) // the second question waits here
	begun := time.Now()
	t.Run("watch", func(t *testing.T) {
		lookups(t, cfg)
		for s.count("udp", "A db.example.")+s.count("udp", "AAAA db.example.") == 0 {
			if time.Since(begun) > condition.Patience {
				t.Fatal("no question is asked")
			}
			time.Sleep(time.Millisecond)
		}
	})
	if d := time.Since(begun); d > condition.Patience {
		t.Errorf("the end took %v", d)
	}
}

func TestIdentity(t *testing.T) {
	equal(t, discovery.Endpoint{Address: "10.0.0.2:1"}.Identity(), "10.0.0.2:1")
	equal(t, discovery.Endpoint{Address: "a:1", Name: "b"}.Identity(), "b")
}
