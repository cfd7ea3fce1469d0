package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/penstock/penstock/proxy/display"
)

// DNSConfig sets up a [DNS] source.
type DNSConfig struct {
	// Name is asked for. It is absolute: search domains are not used.
	Name string
	// Type is "A", "AAAA", "SRV", or "A+AAAA" for both, which empty means too.
	Type string
	// Port is that of the endpoints, from 1 to 65535; 0 for SRV, whose answers
	// bring their own.
	Port int
	// Servers are asked in turn until one answers: IP addresses, with a port
	// unless it is 53. None: those of resolv.conf(5).
	Servers []string
	// ResolvConf is read if there are no Servers, again each time that it has
	// changed; empty: /etc/resolv.conf.
	ResolvConf string
	// MinTTL and MaxTTL bound how long an answer is used; 0: 1 s and 5 min.
	MinTTL, MaxTTL time.Duration
	// Timeout bounds the wait for one server's answer; 0: 2 s.
	Timeout time.Duration
	// HoldNegative is for how long the last good answer is kept while servers say
	// that the name does not exist, or has no such records; 0: 30 s, negative:
	// not at all.
	HoldNegative time.Duration
	// Gate bounds how many questions are asked at once; nil: no bound.
	Gate *Gate
	// Log is told once when lookups begin to fail and once when they work again;
	// nil: nobody is.
	Log *slog.Logger
	// Clock is used for TTLs and pauses; nil: the real one.
	Clock Clock
	// Random returns numbers in [0,1) that spread questions in time; nil: those
	// of math/rand.
	Random func() float64
}

// A Gate is shared by sources that ask the same servers, so that those are not
// asked too much at once.
type Gate struct{ tokens chan struct{} }

// NewGate returns a gate for n questions at once.
func NewGate(n int) *Gate { return &Gate{make(chan struct{}, max(n, 1))} }

// enter waits for its turn; the caller leaves if it returned nil.
func (g *Gate) enter(ctx context.Context) error {
	if g == nil {
		return nil
	}
	select {
	case g.tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *Gate) leave() {
	if g != nil {
		<-g.tokens
	}
}

// DNS is a [Source] that asks name servers, again when the time to live of what
// they answered is over.
//
// For A and AAAA each address is an endpoint. For SRV each address of each target
// is one: those of the lowest priority value, and as backup all others; targets
// share by their weights, and the addresses of a target share what it has.
type DNS struct {
	board
	cfg     DNSConfig
	qtypes  []uint16
	servers servers

	// What follows belongs to the goroutine of Watch.
	memory memory
	holds  map[question]*hold
	round  int
}

// NewDNS checks cfg and returns a source that asks nothing yet. The error is one
// line that says what to write instead.
func NewDNS(cfg DNSConfig) (*DNS, error) {
	d := &DNS{cfg: cfg, memory: memory{}, holds: map[question]*hold{}}
	if err := d.cfg.fill(); err != nil {
		return nil, fmt.Errorf("discovery: dns: %w", err)
	}
	d.qtypes = questionTypes[d.cfg.Type]
	if err := d.servers.fill(&d.cfg); err != nil {
		return nil, fmt.Errorf("discovery: dns: %w", err)
	}
	d.status.Kind, d.status.From = "dns", d.cfg.Type+" "+d.cfg.Name
	return d, nil
}

// questionTypes are the questions for each DNSConfig.Type.
var questionTypes = map[string][]uint16{
	"A":      {dns.TypeA},
	"AAAA":   {dns.TypeAAAA},
	"A+AAAA": {dns.TypeA, dns.TypeAAAA},
	"SRV":    {dns.TypeSRV},
}

// fill checks c and puts the defaults in.
func (c *DNSConfig) fill() error {
	if _, ok := dns.IsDomainName(c.Name); !ok || c.Name == "" || strings.ContainsAny(c.Name, " \t:/") || display.Check(c.Name, display.MaxName) != nil {
		return fmt.Errorf("name %q: write a domain name, such as db.example or _pg._tcp.db.example", c.Name)
	}
	if _, err := netip.ParseAddr(c.Name); err == nil {
		return fmt.Errorf("name %q: an address needs no DNS: write it under endpoints", c.Name)
	}
	if c.Type = strings.ToUpper(c.Type); c.Type == "" {
		c.Type = "A+AAAA"
	}
	if _, ok := questionTypes[c.Type]; !ok {
		return fmt.Errorf("type %q: write A, AAAA, A+AAAA or SRV", c.Type)
	}
	switch {
	case c.Type == "SRV" && c.Port != 0:
		return errors.New("port: SRV records bring their own: write no port")
	case c.Type != "SRV" && (c.Port < 1 || c.Port > 65535):
		return fmt.Errorf("port %d: write the endpoints' port, from 1 to 65535", c.Port)
	}
	c.MinTTL, c.MaxTTL = or(c.MinTTL, time.Second), or(c.MaxTTL, 5*time.Minute)
	if c.MinTTL < 0 || c.MaxTTL < c.MinTTL {
		return fmt.Errorf("min_ttl %v and max_ttl %v: write a max_ttl that is no less than min_ttl", c.MinTTL, c.MaxTTL)
	}
	c.Timeout = or(c.Timeout, 2*time.Second)
	c.HoldNegative = or(c.HoldNegative, 30*time.Second)
	c.Clock = clockOr(c.Clock)
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// SplitName takes "name:port" apart for DNSConfig; port is 0 if there is none.
func SplitName(s string) (name string, port int, err error) {
	if !strings.Contains(s, ":") {
		return s, 0, nil
	}
	name, p, err := net.SplitHostPort(s)
	if err == nil {
		port, err = net.LookupPort("tcp", p)
	}
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("discovery: dns: name %q: write name, or name:port", s)
	}
	return name, port, nil
}
