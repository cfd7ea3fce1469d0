package discovery_test

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// An accepted denial is a warning, and no recovery. The return of endpoints is logged too.
func TestDenialIsAWarning(t *testing.T) {
	s, r := denied(t, 0)
	r.pause(20 * time.Second)
	r.pause(10 * time.Second)
	equal(t, r.logged("DNS lookup failed"), 1)
	r.pause(20 * time.Second)
	equal(t, r.told(), "")
	equal(t, r.logged("DNS works again"), 0)
	equal(t, r.logged(`level=WARN msg="DNS says that the name has no endpoints" name="A db.example" endpoints=0 cause=NXDOMAIN`), 1)
	r.again()
	equal(t, r.logged("has no endpoints"), 1) // once
	s.be(func(s *nameServer) { s.rcode[""] = dns.RcodeSuccess })
	s.set("A db.example.", "30 A 10.0.0.2")
	r.again()
	equal(t, r.told(), "10.0.0.2:5432*1")
	equal(t, r.logged(`level=INFO msg="DNS has endpoints of the name again"`), 1)
}

// A name that has never had endpoints is warned of, too.
func TestNoEndpointsFromTheStart(t *testing.T) {
	s := newServer(t)
	s.set("SRV db.example.", "30 SRV 0 0 0 .")
	cfg := of(s)
	cfg.Type, cfg.Port, cfg.Name = "SRV", 0, "db.example"
	r := lookups(t, cfg)
	r.again()
	equal(t, r.told(), "")
	if n := r.logged("has no endpoints"); n != 1 || !strings.Contains(r.log.String(), `cause="no such service"`) {
		t.Errorf("%d warnings: %s", n, r.log.String())
	}
}
