package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/penstock/penstock/proxy/display"
)

// DNSConfig sets up a [DNS] source.
type DNSConfig struct {
	// Name is the name to look up. It is absolute: search domains are not used.
	Name string
	// Type is "A", "AAAA", "SRV", or "A+AAAA" for both, which is the default.
	Type string
	// Port is the endpoints' port, from 1 to 65535. It is 0 for SRV records, which have
	// their own ports.
	Port int
	// Servers are IP addresses, with a port unless it is 53. They are tried in turn until one answers. While one is
	// silent, the next is tried after a second. None: the servers of resolv.conf(5).
	Servers []string
	// MinTTL and MaxTTL bound how long an answer is used; 0: 1 s and 5 min.
	MinTTL, MaxTTL time.Duration
	// Timeout limits the wait for the answer of one server; 0: 2 s.
	Timeout time.Duration
	// Former is an earlier source for the same name, which may still run, or nil. Known are the endpoints that it has
	// found. They are in use until the first answer. A denial that it has seen lasts since then.
	Former *DNS
	Known  []Endpoint
	// Limiter limits the number of concurrent questions; nil: no limit.
	Limiter *QueryLimiter
	// Log receives one message when lookups begin to fail and one when they work again; nil:
	// none are logged.
	Log *slog.Logger
	// Clock is used for TTLs and pauses; nil: the real one.
	Clock Clock
	// Random returns numbers in [0,1) that spread questions in time; nil: by math/rand.
	Random func() float64
}

// A QueryLimiter is shared by sources of the same servers, and limits their concurrent
// questions.
type QueryLimiter struct{ tokens chan struct{} }

// NewQueryLimiter returns a limiter for n concurrent questions.
func NewQueryLimiter(n int) *QueryLimiter { return &QueryLimiter{make(chan struct{}, max(n, 1))} }

// enter waits for its turn. If it returns nil, the caller must call leave.
func (g *QueryLimiter) enter(ctx context.Context) error {
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

func (g *QueryLimiter) leave() {
	if g != nil {
		<-g.tokens
	}
}

// DNS is a [Source] that looks up a name, and does so again when the time to live of the
// answer is over.
//
// For A and AAAA records, each address is an endpoint. For SRV records, each address of each
// target is an endpoint. Targets with the lowest priority value are used first, and all others
// are backups. Targets share by their weights, and the addresses of a target share its weight.
type DNS struct {
	statusBox
	cfg     DNSConfig
	qtypes  []uint16
	servers servers
	asked   atomic.Int64 // questions of the lookup under way

	// The fields below belong to the goroutine of Watch.
	memory   memory
	round    int
	answered bool // a question that was asked in this round has endpoints
	failed   bool // one has none, or its answer cannot be used

	holds map[question]*staleRecords // guarded by mu
}

// NewDNS checks cfg and returns a source that has not looked up anything. The error is one
// line with a valid alternative.
func NewDNS(cfg DNSConfig) (*DNS, error) {
	d := &DNS{cfg: cfg, memory: memory{}, holds: map[question]*staleRecords{}}
	if err := d.cfg.fill(); err != nil {
		return nil, fmt.Errorf("discovery: dns: %w", err)
	}
	d.qtypes = questionTypes[d.cfg.Type]
	if err := d.servers.fill(&d.cfg); err != nil {
		return nil, fmt.Errorf("discovery: dns: %w", err)
	}
	d.status.Kind, d.status.From = "dns", d.cfg.Type+" "+d.cfg.Name
	d.status.Endpoints = len(cfg.Known)
	if d.cfg.Former != nil {
		d.follow(d.cfg.Former)
		d.cfg.Former = nil // it need not stay in memory
	}
	return d, nil
}

// follow takes over what an earlier source knows.
func (d *DNS) follow(former *DNS) {
	former.mu.Lock()
	defer former.mu.Unlock()
	d.status.Changed, d.status.Confirmed = former.status.Changed, former.status.Confirmed
	for q, h := range former.holds {
		d.holds[q] = &staleRecords{records: h.records, since: h.since}
	}
}

// questionTypes are the questions for each DNSConfig.Type.
var questionTypes = map[string][]uint16{
	"A":      {dns.TypeA},
	"AAAA":   {dns.TypeAAAA},
	"A+AAAA": {dns.TypeA, dns.TypeAAAA},
	"SRV":    {dns.TypeSRV},
}

// fill checks c and fills in the defaults.
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
		return errors.New("port: SRV records contain the port: leave port out")
	case c.Type != "SRV" && (c.Port < 1 || c.Port > 65535):
		return fmt.Errorf("port %d: write the endpoints' port, from 1 to 65535", c.Port)
	}
	c.MinTTL, c.MaxTTL = cmp.Or(c.MinTTL, time.Second), cmp.Or(c.MaxTTL, 5*time.Minute)
	if c.MinTTL < 0 || c.MaxTTL < c.MinTTL {
		return fmt.Errorf("min_ttl %v and max_ttl %v: write a max_ttl of min_ttl or more", c.MinTTL, c.MaxTTL)
	}
	c.Timeout = cmp.Or(c.Timeout, 2*time.Second)
	c.Clock = clockOr(c.Clock)
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
