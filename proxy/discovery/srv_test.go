package discovery_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/discovery"
	"pgregory.net/rapid"
)

const srv = "SRV _pg._tcp.db.example."

func services(s *nameServer) discovery.DNSConfig {
	return discovery.DNSConfig{Name: "_pg._tcp.db.example", Type: "SRV", Servers: []string{s.addr}, Timeout: condition.Patience}
}

func TestServices(t *testing.T) {
	s := newServer(t)
	s.set(srv, "60 SRV 10 30 5432 a.example.", "60 SRV 10 10 5433 b.example.", "60 SRV 20 0 5432 c.example.")
	s.set("A a.example.", "60 A 10.0.0.1")
	s.set("A b.example.", "60 A 10.0.0.2")
	s.set("AAAA c.example.", "60 AAAA fd00::3")
	r := lookups(t, services(s))
	r.again()
	equal(t, r.told(), "10.0.0.1:5432*3 10.0.0.2:5433*1 [fd00::3]:5432*1b")
	equal(t, r.source.Status().From, "SRV _pg._tcp.db.example")
}

func TestAddressesOfATargetShareItsWeight(t *testing.T) {
	s := newServer(t)
	s.set(srv, "60 SRV 10 1 5432 a.example.", "60 SRV 10 1 5432 b.example.")
	s.set("A a.example.", "60 A 10.0.0.1", "60 A 10.0.0.2")
	s.set("AAAA a.example.", "60 AAAA fd00::1")
	s.set("A b.example.", "60 A 10.0.0.3")
	r := lookups(t, services(s))
	r.again()
	equal(t, r.told(), "10.0.0.1:5432*1 10.0.0.2:5432*1 10.0.0.3:5432*3 [fd00::1]:5432*1")
}

func TestAddressesThatCameAlong(t *testing.T) {
	s := newServer(t)
	s.set(srv, "60 SRV 10 1 5432 a.example.")
	s.be(func(s *nameServer) {
		s.extra = []dns.RR{
			record("a.example. 30 IN A 10.0.0.1"), record("A.example. 30 IN AAAA fd00::1"),
			record("evil.example. 30 IN A 10.6.6.6"),
		}
	})
	r := lookups(t, services(s))
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.1:5432*1 [fd00::1]:5432*1")
	equal(t, s.count("udp", "A a.example."), 0)
	equal(t, s.count("udp", "AAAA a.example."), 0)

	// They expire before the SRV records, and are asked for alone.
	s.set("A a.example.", "90 A 10.0.0.2")
	s.set("AAAA a.example.", "90 AAAA fd00::1")
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.2:5432*1 [fd00::1]:5432*1")
	equal(t, s.count("udp", srv), 1)
}

func TestTargetThatFails(t *testing.T) {
	s := newServer(t)
	s.set(srv, "30 SRV 10 1 5432 a.example.", "30 SRV 10 1 5432 b.example.")
	s.set("A a.example.", "30 A 10.0.0.1")
	s.set("A b.example.", "30 A 10.0.0.2")
	cfg := services(s)
	cfg.MinTTL = 30 * time.Second // all are asked for together
	r := lookups(t, cfg)
	r.pause(30 * time.Second)
	r.told()
	s.set("A a.example.", "30 A 10.0.0.9")
	s.be(func(s *nameServer) { s.rcode["A b.example."] = dns.RcodeServerFailure })
	r.again()
	equal(t, r.told(), "10.0.0.2:5432*1 10.0.0.9:5432*1")
	r.fails("b.example")
}

// TestOneTargetFails: while one of several targets fails, the answers to other questions are good answers, and only the questions
// that are asked in vain count as failed.
func TestOneTargetFails(t *testing.T) {
	t.Parallel()

	s := newServer(t)
	s.set(srv, "1 SRV 10 1 5432 a.example.", "1 SRV 10 1 5432 b.example.")
	s.set("A a.example.", "7 A 10.0.0.1")
	s.set("A b.example.", "7 A 10.0.0.2")
	r := lookups(t, services(s))
	r.again()
	r.told()
	s.count("udp", "A b.example.")
	s.be(func(s *nameServer) { s.rcode["A b.example."] = dns.RcodeServerFailure })
	for range 60 {
		r.again()
	}
	if status := r.source.Status(); status.Failures != s.count("udp", "A b.example.") || !status.Confirmed.Equal(r.clock.Now()) || !status.Stale {
		t.Errorf("status %+v", status)
	}
	r.fails("dns: A b.example.: " + s.addr + " says SERVFAIL")
	equal(t, r.logged("some DNS lookups failed, and the answers to the others are used"), 1)
	equal(t, r.logged("the DNS lookup failed"), 0)
}

func TestNewTargetsThatFail(t *testing.T) {
	s := newServer(t)
	s.set(srv, "30 SRV 10 1 5432 a.example.")
	s.set("A a.example.", "30 A 10.0.0.1")
	cfg := services(s)
	cfg.MinTTL = 30 * time.Second
	r := lookups(t, cfg)
	r.pause(30 * time.Second)
	r.told()
	s.set(srv, "30 SRV 10 1 5432 b.example.")
	s.be(func(s *nameServer) {
		s.rcode["A b.example."], s.rcode["AAAA b.example."] = dns.RcodeServerFailure, dns.RcodeServerFailure
	})
	r.again()
	r.silence()
	if status := r.source.Status(); !status.Stale || status.Endpoints != 1 {
		t.Errorf("status %+v", status)
	}
	s.be(func(s *nameServer) { clear(s.rcode) })
	s.set("A b.example.", "30 A 10.0.0.2")
	r.again()
	equal(t, r.told(), "10.0.0.2:5432*1")
}

// oneService is a service with one target, whose addresses are known for long.
func oneService(t *testing.T) (*nameServer, *rig) {
	s := newServer(t)
	s.set(srv, "30 SRV 10 1 5432 a.example.")
	s.set("A a.example.", "3000 A 10.0.0.1")
	s.set("AAAA a.example.", "3000 AAAA fd00::1")
	r := lookups(t, services(s))
	r.pause(30 * time.Second)
	r.told()
	return s, r
}

func TestNoSuchService(t *testing.T) {
	s, r := oneService(t)
	s.set(srv, "10 SRV 0 0 0 .")
	for range 3 {
		r.pause(10 * time.Second)
		r.silence()
	}
	r.pause(10 * time.Second)
	equal(t, r.told(), "")
}

// TestServiceDeniedThenFailing: a failure while a denied answer is held does not remove the endpoints.
func TestServiceDeniedThenFailing(t *testing.T) {
	s, r := oneService(t)
	s.set(srv)
	r.pause(20 * time.Second)
	s.be(func(s *nameServer) { s.rcode[srv] = dns.RcodeServerFailure })
	for range 5 {
		r.again()
	}
	r.silence()
	equal(t, r.source.Status().Endpoints, 2)
}

// TestQuestionsPerSecond: many targets whose records live for no time do not make many questions a second.
func TestQuestionsPerSecond(t *testing.T) {
	const n = 1000
	s := newServer(t)
	var targets []string
	for i := range n {
		targets = append(targets, fmt.Sprintf("0 SRV 10 1 5432 t%d.example.", i))
		s.set(fmt.Sprintf("A t%d.example.", i), fmt.Sprintf("0 A 10.0.%d.%d", i/256, i%256))
	}
	s.set(srv, targets...)
	r := lookups(t, services(s))
	took := time.Duration(0)
	for took < 30*time.Second {
		took += r.again()
	}
	asked := 0
	s.be(func(s *nameServer) {
		for _, n := range s.asked {
			asked += n
		}
	})
	if most := int(took/time.Second)*500 + 2*n + 1; asked > most || asked < most/3 {
		t.Errorf("%d questions in %v", asked, took)
	}
}

// TestSilentServersEndALookup: if servers are silent, not every one of many questions waits for them.
func TestSilentServersEndALookup(t *testing.T) {
	s := newServer(t)
	var targets []string
	for i := range 100 {
		targets = append(targets, fmt.Sprintf("300 SRV 10 1 5432 t%d.example.", i))
		s.set(fmt.Sprintf("A t%d.example.", i), fmt.Sprintf("30 A 10.0.0.%d", i))
		s.set(fmt.Sprintf("AAAA t%d.example.", i), "30 AAAA fd00::1")
	}
	s.set(srv, targets...)
	cfg := services(s)
	cfg.Timeout = 300 * time.Millisecond
	r := lookups(t, cfg)
	r.pause(30 * time.Second)
	r.told()
	s.be(func(s *nameServer) { s.silent = true; clear(s.asked) })
	r.again()
	r.silence()
	asked := 0
	s.be(func(s *nameServer) {
		for _, n := range s.asked {
			asked += n
		}
	})
	if asked > 50 { // twice as many as are asked at once, and some more on a slow machine
		t.Errorf("%d questions asked of a silent server", asked)
	}
	r.fails(s.addr + " does not answer; ")
}

// TestOneCauseOfManyLookups: if servers fail for all targets of a name in the same way, the error has this cause once.
func TestOneCauseOfManyLookups(t *testing.T) {
	t.Parallel()

	s := newServer(t)
	s.set(srv, "300 SRV 10 1 5432 a.example.", "300 SRV 10 1 5432 b.example.")
	s.be(func(s *nameServer) {
		for _, q := range []string{"A a.example.", "AAAA a.example.", "A b.example.", "AAAA b.example."} {
			s.rcode[q] = dns.RcodeServerFailure
		}
	})
	r := lookups(t, services(s))
	r.again()
	equal(t, r.source.Status().Err.Error(), "discovery: dns: A a.example. and 3 other lookups: "+s.addr+" says SERVFAIL")
	s.be(func(s *nameServer) { delete(s.rcode, "A a.example."); delete(s.rcode, "A b.example.") })
	s.set("A a.example.", "1 A 10.0.0.1")
	r.again()
	equal(t, r.source.Status().Err.Error(), "discovery: dns: AAAA a.example. and AAAA b.example.: "+s.addr+" says SERVFAIL")
}

// TestRecordsThatLeadNowhere: records that cannot belong to an endpoint are refused with the reason, and the
// others are used. If there are no others, the lookup has failed and the known endpoints stay.
func TestRecordsThatLeadNowhere(t *testing.T) {
	s := newServer(t)
	s.set(srv, "30 SRV 10 1 0 a.example.", "30 SRV 10 1 5432 a.example.", "30 SRV 10 1 5432 b.example.")
	s.set("A a.example.", "30 A 10.0.0.1", "30 A 0.0.0.0", "30 A 224.0.0.1", "30 A 255.255.255.255")
	s.set("AAAA a.example.", "30 AAAA ::", "30 AAAA fe80::1")
	s.set("A b.example.", "30 A 0.0.0.0") // has never had an endpoint
	cfg := services(s)
	cfg.MinTTL = 30 * time.Second // all are asked for together
	r := lookups(t, cfg)
	r.again()
	equal(t, r.told(), "10.0.0.1:5432*1; A a.example.: 0.0.0.0 is not the address of a host; A a.example.: 224.0.0.1 is a multicast address; "+
		"A a.example.: 255.255.255.255 is the broadcast address; A b.example.: 0.0.0.0 is not the address of a host; AAAA a.example.: :: is not the address of a host; "+
		"AAAA a.example.: fe80::1 is link-local, and has no zone; SRV _pg._tcp.db.example.: a.example has port 0")
	r.succeeds()

	s.set(srv, "30 SRV 10 1 0 a.example.")
	s.set("A a.example.", "30 A 0.0.0.0")
	r.again()
	r.again()
	r.silence()
	r.fails("SRV _pg._tcp.db.example.: a.example has port 0")

	s.set(srv, "30 SRV 10 1 5432 a.example.", "30 SRV 0 0 0 .")
	s.set("A a.example.", "30 A 10.0.0.2")
	s.set("AAAA a.example.", "30 AAAA fd00::2")
	for range 3 {
		r.again()
	}
	equal(t, r.told(), "10.0.0.2:5432*1 [fd00::2]:5432*1")
	r.succeeds()
}

// TestRefusedRecordIsNoFailure: while a record of an answer is refused, answers are successful, and changes among the
// others are followed. If all records are refused, the lookup has failed.
func TestRefusedRecordIsNoFailure(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 0.0.0.0", "30 A 224.0.0.1")
	r := addresses(t, s, nil)
	r.again()
	r.silence()
	r.fails("no record can be an endpoint: A db.example.: 0.0.0.0 is not the address of a host")

	const refused = "; A db.example.: 0.0.0.0 is not the address of a host"
	s.set("A db.example.", "30 A 10.0.0.1", "30 A 0.0.0.0")
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.1:5432*1"+refused)
	r.succeeds()
	s.set("A db.example.", "30 A 0.0.0.0", "30 A 10.0.0.2", "30 A 0.0.0.0")
	r.pause(30 * time.Second)
	equal(t, r.told(), "10.0.0.2:5432*1"+refused)
	r.succeeds()
	s.set("A db.example.", "30 A 10.0.0.2", "30 A 0.0.0.0")
	r.pause(30 * time.Second)
	r.silence()

	s.set("A db.example.", "3600 A 0.0.0.0")
	for range 3 {
		r.pause(27 * time.Second) // as after a denial
		r.silence()
		r.fails("no record can be an endpoint, and the last answer is kept: A db.example.: 0.0.0.0 is not the address of a host")
	}
	equal(t, r.source.Status().Failures, 3)
	equal(t, r.logged("the DNS lookup failed, and the current endpoints stay"), 1)
	s.set("A db.example.", "30 A 10.0.0.2")
	r.again()
	equal(t, r.told(), "10.0.0.2:5432*1")
	r.succeeds()
}

func TestWeightsOfServices(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []uint16
		want    []int
	}{
		{"equal", []uint16{65535, 65535}, []int{1, 1}},
		{"all none", []uint16{0, 0, 0}, []int{1, 1, 1}},
		{"none among some", []uint16{0, 100}, []int{1, 256}},
		{"exact", []uint16{10, 20, 70}, []int{1, 2, 7}},
		{"large", []uint16{65535, 1}, []int{256, 1}},
		{"nearest", []uint16{1000, 999, 500}, []int{2, 2, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var services []discovery.Service
			for i, w := range c.weights {
				services = append(services, discovery.Service{Target: string(rune('a' + i)), Weight: w, Port: 1})
			}
			var got []int
			for _, e := range discovery.Weighted(services, addressesOf(len(c.weights))) {
				got = append(got, e.Weight)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// addressesOf gives the targets a, b, ... an address each.
func addressesOf(n int) map[string][]netip.Addr {
	found := map[string][]netip.Addr{}
	for i := range n {
		found[string(rune('a'+i))] = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}
	}
	return found
}

func TestWeightedProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		found := map[string][]netip.Addr{}
		var services []discovery.Service
		for i := range rapid.IntRange(0, 12).Draw(t, "services") {
			target := string(rune('a' + i))
			services = append(services, discovery.Service{
				Target: target, Port: 5432, Priority: rapid.SampledFrom([]uint16{1, 2, 3}).Draw(t, "priority"),
				Weight: rapid.Uint16().Draw(t, "weight"),
			})
			for range rapid.IntRange(0, 3).Draw(t, "addresses") {
				found[target] = append(found[target], netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "address")}))
			}
		}
		got := discovery.Weighted(services, found)
		shuffled := rapid.Permutation(services).Draw(t, "order")
		if again := discovery.Weighted(shuffled, found); !slices.Equal(got, again) {
			t.Fatalf("the order of records matters: %v and %v", got, again)
		}
		seen := map[string]bool{}
		for i, e := range got {
			switch {
			case seen[e.Address]:
				t.Fatalf("%s is there twice", e.Address)
			case e.Weight < 1 || e.Weight > discovery.MaxWeight:
				t.Fatalf("weight %d", e.Weight)
			case e.Backup && got[0].Backup:
				t.Fatal("all are backup")
			case i > 0 && got[i-1].Backup && !e.Backup:
				t.Fatal("backups are not last")
			}
			seen[e.Address] = true
		}
		for _, addresses := range found {
			for _, a := range addresses {
				if !seen[netip.AddrPortFrom(a, 5432).String()] {
					t.Fatalf("%v is missing", a)
				}
			}
		}
	})
}

// TestTargetsWithoutAnAnswer: as long as some targets are not answered at all, the others are still asked for.
func TestTargetsWithoutAnAnswer(t *testing.T) {
	s := newServer(t)
	records := []string{}
	for i := range 8 {
		records = append(records, fmt.Sprintf("60 SRV 10 1 5432 gone%d.example.", i))
		s.be(func(s *nameServer) {
			s.rcode[fmt.Sprintf("A gone%d.example.", i)], s.rcode[fmt.Sprintf("AAAA gone%d.example.", i)] = none, none
		})
	}
	s.set(srv, append(records, "60 SRV 10 1 5432 here.example.")...)
	s.set("A here.example.", "60 A 10.0.0.1")
	cfg := services(s)
	cfg.Timeout = 20 * time.Millisecond
	r := lookups(t, cfg)
	for range 4 {
		if r.again(); len(r.updates) > 0 {
			break
		}
	}
	equal(t, r.told(), "10.0.0.1:5432*1")
}
