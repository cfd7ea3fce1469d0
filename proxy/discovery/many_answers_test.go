package discovery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/display"
)

// TestNamesOfAnswers: names in answers are shown as text, whatever bytes they have.
func TestNamesOfAnswers(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", `60 CNAME \027[2J\010\155.example.`)
	s.be(func(s *nameServer) { s.rcode["A \\027[2j\\010\\155.example."] = dns.RcodeServerFailure })
	r := lookups(t, discovery.DNSConfig{Name: "db.example", Type: "A", Port: 80, Servers: []string{s.addr}, Timeout: patience})
	r.again()
	err := r.source.Status().Err
	if err == nil || !strings.Contains(err.Error(), `\027[2j`) || display.Text(err.Error()) != err.Error() {
		t.Errorf("%v", err)
	}
}

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
	if !status.Stale || status.Endpoints != 1 || status.Err == nil || status.Err.Error() != "discovery: dns: too many endpoints: 10000 is the most" {
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
