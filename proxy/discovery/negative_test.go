package discovery_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/penstock/penstock/proxy/discovery"
)

// denied makes a rig with one known address, which its server then denies. The SOA record gives denials 20 s.
func denied(t *testing.T) (*nameServer, *rig) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	r := addresses(t, s, nil)
	r.pause(30 * time.Second)
	r.told()
	s.set("A db.example.")
	s.be(func(s *nameServer) { s.rcode[""] = dns.RcodeNameError })
	return s, r
}

func TestDenialsAreHeldForATime(t *testing.T) {
	_, r := denied(t)
	r.pause(20 * time.Second)
	r.silence()
	status := r.source.Status()
	if status.Err == nil || !strings.Contains(status.Err.Error(), "NXDOMAIN") || !regexp.MustCompile(`kept until \d\d:\d\d:\d\d$`).MatchString(status.Err.Error()) || !status.Stale || status.Endpoints != 1 {
		t.Errorf("status %+v", status)
	}
	r.pause(10 * time.Second)
	r.silence()
	r.pause(20 * time.Second) // the name has been denied for 30 s
	equal(t, r.told(), "")
	if status := r.source.Status(); status.Err != nil || status.Stale || status.Endpoints != 0 || status.Denied != "NXDOMAIN" {
		t.Errorf("status %+v", status)
	}
	r.pause(20 * time.Second)
	r.silence()
}

// TestDenialSeenBefore: a source that follows an earlier one holds the last answer for as long as the earlier one would
// have held it. It holds an answer for the whole time if it is the first to see that its name is denied.
func TestDenialSeenBefore(t *testing.T) {
	t.Parallel()

	for _, seen := range []bool{true, false} {
		s, r := denied(t)
		if seen {
			r.pause(20 * time.Second)
		}
		cfg := of(s)
		cfg.Type, cfg.MinTTL, cfg.Former = "A", 2*time.Second, r.source.(*discovery.DNS)
		cfg.Known = []discovery.Endpoint{{Address: "10.0.0.2:5432", Weight: 1}}
		next := &rig{t: t, clock: newManual(), log: r.log}
		next.clock.now = r.clock.Now()
		cfg.Clock, cfg.Random = next.clock, func() float64 { return 0 }
		left := 30 * time.Second
		if seen {
			next.clock.pass(15 * time.Second)
			left = 15 * time.Second
		}
		source, err := discovery.NewDNS(cfg)
		must(t, err)
		next.watch(source)
		for left > 0 {
			left -= next.again()
			next.silence()
			next.fails("NXDOMAIN; the last answer is kept until ")
			equal(t, source.Status().Endpoints, 1)
		}
		next.again()
		equal(t, next.told(), "")
	}
}

func TestDenialThatIsTakenBack(t *testing.T) {
	s, r := denied(t)
	r.pause(20 * time.Second)
	s.be(func(s *nameServer) { s.rcode[""] = dns.RcodeSuccess })
	s.set("A db.example.", "30 A 10.0.0.2")
	r.pause(30 * time.Second)
	r.silence()
	// The next one is held as long as the first.
	s.set("A db.example.")
	r.pause(20 * time.Second)
	r.pause(10 * time.Second)
	r.silence()
	r.again()
	equal(t, r.told(), "")
}

func TestFailureIsNoDenial(t *testing.T) {
	s, r := denied(t)
	r.pause(20 * time.Second)
	s.be(func(s *nameServer) { s.rcode[""] = dns.RcodeServerFailure })
	for range 10 { // long after the 30 s
		r.again()
	}
	r.silence()
	s.be(func(s *nameServer) { s.rcode[""] = dns.RcodeNameError })
	r.again()
	equal(t, r.told(), "")
}

// TestRepliesThatAreCutAreNoDenial: if a reply lacks records that its header counts, or is truncated by TCP,
// the lookup has failed, and the endpoints stay.
func TestRepliesThatAreCutAreNoDenial(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*nameServer)
		want   string
	}{
		"one counted":  {func(s *nameServer) { s.counts = 1 }, "lacks records"},
		"many counted": {func(s *nameServer) { s.counts = 65535 }, "lacks records"},
		"truncated":    {func(s *nameServer) { s.cut = true }, "truncated, although it came over TCP"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.set("A db.example.", "30 A 10.0.0.2")
			r := addresses(t, s, nil)
			r.pause(30 * time.Second)
			equal(t, r.told(), "10.0.0.2:5432*1")
			s.be(test.change)
			for range 10 { // for longer than a denial is held
				r.again()
			}
			r.silence()
			r.fails(test.want)
		})
	}
}

func TestDenialThatSaysNoTime(t *testing.T) {
	s, r := denied(t)
	s.be(func(s *nameServer) { s.noSOA, s.rcode[""] = true, dns.RcodeSuccess })
	r.pause(5 * time.Second)
	r.silence()
	r.fails("NODATA")
}

func TestNameWithoutAddresses(t *testing.T) {
	s := newServer(t)
	r := lookups(t, of(s))
	r.pause(20 * time.Second)
	equal(t, r.told(), "") // the denial is known
}

func TestOneFamilyDenied(t *testing.T) {
	s := newServer(t)
	s.set("A db.example.", "30 A 10.0.0.2")
	s.set("AAAA db.example.", "30 AAAA fd00::1")
	r := lookups(t, of(s))
	r.pause(30 * time.Second)
	r.told()
	s.set("AAAA db.example.")
	r.pause(20 * time.Second)
	equal(t, r.told(), "10.0.0.2:5432*1") // nothing is held: the name exists
	if status := r.source.Status(); status.Err != nil {
		t.Errorf("status %+v", status)
	}
}

// An accepted denial is logged as a warning, not as a recovery. The return of endpoints is logged too.
func TestDenialIsAWarning(t *testing.T) {
	s, r := denied(t)
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
	equal(t, r.logged(`level=INFO msg="DNS has endpoints for the name again"`), 1)
	equal(t, r.source.Status().Denied, "")
}

// A name that has never had endpoints is logged as a warning, too.
func TestNoEndpointsFromTheStart(t *testing.T) {
	s := newServer(t)
	s.set(srv, "30 SRV 0 0 0 .")
	r := lookups(t, services(s))
	r.again()
	equal(t, r.told(), "")
	if n := r.logged("has no endpoints"); n != 1 || !strings.Contains(r.log.String(), `cause="no such service"`) {
		t.Errorf("%d warnings: %s", n, r.log.String())
	}
}
