package discovery_test

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/penstock/penstock/proxy/discovery"
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

// FuzzAnswer: from any reply, one of three results and a time are learned. If records are left
// out it may be none of them, and is neither another name nor a denial.
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
