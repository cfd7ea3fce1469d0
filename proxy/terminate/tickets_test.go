package terminate_test

import (
	"crypto/tls"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/terminate"
)

// A clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// TestTickets: what a client was given is taken after a reload and a rotation, but not
// for ever, nor where it was not made, nor once others decide who may come in.
func TestTickets(t *testing.T) {
	a, clients := newAuthority(t, "test"), newAuthority(t, "clients")
	pairs := []terminate.Pair{a.pair("a.test")}
	mine := clients.pair("me")
	cert, err := tls.LoadX509KeyPair(mine.Cert, mine.Key)
	must(t, err)
	both := newAuthority(t, "both")
	appendFile(t, both.file, clients.file)

	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, test := range map[string]struct {
			ca, thenCA string
			then       string // the listener's name
			fresh      bool   // tickets are not shared
			pass       time.Duration
			times      int
			want       bool
		}{
			"at once":                     {then: "web", want: true},
			"after a rotation":            {then: "web", pass: time.Hour, times: 1, want: true},
			"after two rotations":         {then: "web", pass: time.Hour, times: 2, want: true},
			"after three":                 {then: "web", pass: time.Hour, times: 3, want: false},
			"after a long time":           {then: "web", pass: 100 * time.Hour, times: 1, want: false},
			"at another listener":         {then: "mail", want: false},
			"of another process":          {then: "web", fresh: true, want: false},
			"mutual":                      {ca: clients.file, thenCA: clients.file, then: "web", want: true},
			"others decide by now":        {ca: clients.file, thenCA: both.file, then: "web", want: false},
			"a certificate is needed now": {thenCA: clients.file, then: "web", want: false},
		} {
			t.Run(tls.VersionName(version)+"/"+name, func(t *testing.T) {
				now := &clock{now: time.Now()}
				tickets := terminate.NewTickets(&terminate.TicketsConfig{Rotate: time.Hour, Keep: 3, Now: now.Now})
				before := newServer(t, terminate.Config{Name: "web", Certificates: pairs, ClientCA: test.ca, Tickets: tickets})
				cfg := &tls.Config{
					ServerName: "a.test", RootCAs: a.pool(), Certificates: []tls.Certificate{cert},
					ClientSessionCache: tls.NewLRUClientSessionCache(4), MaxVersion: version,
				}
				if seen, cerr, serr := meet(t, before, cfg); cerr != nil || serr != nil || seen.DidResume {
					t.Fatalf("the first: %v, %v, resumed %v", cerr, serr, seen.DidResume)
				}
				if test.fresh {
					tickets = nil
				}
				after := newServer(t, terminate.Config{Name: test.then, Certificates: pairs, ClientCA: test.thenCA, Tickets: tickets})
				for range test.times {
					now.pass(test.pass)
					// Somebody else's handshake, by which the clock is looked at.
					_, cerr, serr := meet(t, after, &tls.Config{ServerName: "a.test", RootCAs: a.pool(), Certificates: cfg.Certificates})
					must(t, errors.Join(cerr, serr))
				}
				seen, cerr, serr := meet(t, after, cfg)
				must(t, errors.Join(cerr, serr))
				if seen.DidResume != test.want {
					t.Errorf("resumed: %v, want %v", seen.DidResume, test.want)
				}
			})
		}
	}
}
