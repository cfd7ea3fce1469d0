package discovery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/display"
)

func reply(code int, records ...string) *dns.Msg {
	m := &dns.Msg{}
	m.Rcode = code
	for _, r := range records {
		rr := record(r)
		if rr.Header().Rrtype == dns.TypeSOA {
			m.Ns = append(m.Ns, rr)
			continue
		}
		m.Answer = append(m.Answer, rr)
	}
	return m
}

const soa = "example. 600 IN SOA ns.example. root.example. 1 2 3 4 20"

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name         string
		reply        *dns.Msg
		addresses    int
		ttl          time.Duration
		next, denied string
	}{
		{"addresses", reply(0, "a.example. 9 A 10.0.0.1", "a.example. 8 A 10.0.0.2"), 2, 8 * time.Second, "", ""},
		{"other names and types", reply(0, "b.example. 9 A 10.0.0.1", "a.example. 8 AAAA fd00::1", soa), 0, 20 * time.Second, "", "NODATA"},
		{"another class", reply(0, "a.example. 9 CH A 10.0.0.1"), 0, 5 * time.Second, "", "NODATA"},
		{"no such name", reply(dns.RcodeNameError, soa), 0, 20 * time.Second, "", "NXDOMAIN"},
		{"an alias of no such name", reply(dns.RcodeNameError, "a.example. 7 CNAME b.example.", soa), 0, 7 * time.Second, "", "NXDOMAIN"},
		{"an alias without such records", reply(0, "a.example. 70 CNAME b.example.", soa), 0, 20 * time.Second, "", "NODATA"},
		{"an alias that leads out", reply(0, "a.example. 7 CNAME b.example."), 0, 7 * time.Second, "b.example.", ""},
		{"an alias of itself", reply(0, "a.example. 7 CNAME a.example.", soa), 0, 7 * time.Second, "a.example.", ""},
		{"nothing at all", reply(0), 0, 5 * time.Second, "", "NODATA"},
		{"the least of two times", reply(0, "example. 3 IN SOA ns.example. root.example. 1 2 3 4 20"), 0, 3 * time.Second, "", "NODATA"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addresses, _, _, ttl, next, denied := discovery.Read(c.reply, "a.example.", dns.TypeA)
			equal(t, len(addresses), c.addresses)
			equal(t, ttl, c.ttl)
			equal(t, next, c.next)
			equal(t, denied, c.denied)
		})
	}
}

// FuzzAnswer: every reply gives exactly one of three results, and a time. If records were left out it may give
// none of the three, but never another name or a denial.
func FuzzAnswer(f *testing.F) {
	for _, m := range []*dns.Msg{
		reply(0, "a.example. 9 A 10.0.0.1"), reply(0, "a.example. 9 SRV 1 2 3 b.example."), reply(dns.RcodeNameError, soa),
		reply(0, "a.example. 7 CNAME b.example.", "b.example. 7 CNAME a.example."),
		reply(0, "a.example. 9 SRV 1 2 0 b.example."), reply(0, "a.example. 9 A 0.0.0.0"), // left out
	} {
		data, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := new(dns.Msg)
		if m.Unpack(data) != nil {
			return
		}
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV} {
			addresses, targets, left, ttl, next, denied := discovery.Read(m, "a.example.", qtype)
			learned := 0
			for _, is := range []bool{len(addresses)+targets > 0, next != "", denied != ""} {
				if is {
					learned++
				}
			}
			if learned > 1 || learned == 0 && left == 0 || left > 0 && next+denied != "" || ttl < 0 {
				t.Fatalf("%d addresses, %d targets, %d left out, next %q, denied %q, for %v", len(addresses), targets, left, next, denied, ttl)
			}
		}
	})
}

// TestNamesOfAnswers: names in answers are shown as text, whatever bytes they have.
func TestNamesOfAnswers(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", `60 CNAME \027[2J\010\155.example.`)
	s.be(func(s *nameServer) { s.rcode["A \\027[2j\\010\\155.example."] = dns.RcodeServerFailure })
	r := lookups(t, discovery.DNSConfig{Name: "db.example", Type: "A", Port: 80, Servers: []string{s.addr}, Timeout: condition.Patience})
	r.again()
	err := r.source.Status().Err
	if err == nil || !strings.Contains(err.Error(), `\027[2j`) || display.Text(err.Error()) != err.Error() {
		t.Errorf("%v", err)
	}
}

// mostMemory is the memory that an answer may take, whatever its content.
const mostMemory = 64 << 20

// TestTooManyEndpoints: services and addresses multiply. A result that is too large is refused
// as a whole, with little memory, and the known endpoints stay.
func TestTooManyEndpoints(t *testing.T) {
	s := newServer(t)
	s.set(srv, "1 SRV 10 30 5432 a.example.")
	s.set("A a.example.", "1 A 10.0.0.1")
	s.set("AAAA a.example.")
	r := lookups(t, services(s))
	r.pause(time.Second)
	equal(t, r.told(), "10.0.0.1:5432*1")

	var ports, addresses []string
	for i := range 1200 {
		ports = append(ports, fmt.Sprintf("1 SRV 10 1 %d a.example.", 1000+i))
		addresses = append(addresses, fmt.Sprintf("1 A 10.1.%d.%d", i/200, i%200))
	}
	s.set(srv, ports...)
	s.set("A a.example.", addresses...)
	most, _ := heap.Taken(func() { r.again() })
	t.Logf("1,200 services of 1,200 addresses take %d KiB", most>>10)
	if most > mostMemory {
		t.Errorf("they take %d MiB", most>>20)
	}
	r.silence()
	status := r.source.Status()
	if !status.Stale || status.Endpoints != 1 || status.Err == nil || status.Err.Error() != "discovery: dns: too many endpoints: more than 10000" {
		t.Errorf("%+v", status)
	}

	// Ten thousand addresses of several targets are too many before all targets were asked
	// for.
	s.set(srv)
	var targets []string
	for i := range 100 {
		targets = append(targets, fmt.Sprintf("1 SRV 10 1 5432 t%d.example.", i))
		s.set(fmt.Sprintf("A t%d.example.", i), addresses...)
	}
	s.set(srv, targets...)
	most, _ = heap.Taken(func() { r.again() })
	t.Logf("100 services of 1,200 addresses each take %d KiB", most>>10)
	if most > mostMemory {
		t.Errorf("they take %d MiB", most>>20)
	}
	r.silence()
	if status := r.source.Status(); status.Endpoints != 1 || status.Err == nil {
		t.Errorf("%+v", status)
	}

	// The largest allowed number is accepted.
	s.set(srv, targets[:8]...)
	for i := range 16 {
		r.again()
		if len(r.updates) > 0 || i == 15 {
			break
		}
	}
	if found := <-r.updates; len(found) != 1200 { // the same addresses
		t.Errorf("%d endpoints", len(found))
	}
}
