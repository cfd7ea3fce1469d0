package tlsterm_test

import (
	"crypto/tls"
	"errors"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/penstock/penstock/proxy/internal/tlsterm"
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

// stepped is the result that time.Now would have had at t if the time of day had been set
// by so many seconds before: the monotonic reading is the same. There is no other way to
// such a time, because setting the machine's clock would affect all its processes. In
// package time the wall time of one with a monotonic reading is 33 bits of seconds above
// 30 bits of nanoseconds.
func stepped(t time.Time, seconds int) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(seconds << 30)
	return t
}

// TestTicketsByTheMonotonicClock: whatever is done to the time of day, keys change when they
// have been in use for so long, and not earlier.
func TestTicketsByTheMonotonicClock(t *testing.T) {
	const day = 24 * 60 * 60
	began := time.Now()
	if d := stepped(began, day); d.Sub(began) != 0 || d.Round(0).Sub(began.Round(0)) != day*time.Second {
		t.Fatalf("package time is another than this test knows: %v", d)
	}
	a := newAuthority(t, "test")
	pairs := []tlsterm.Pair{a.pair("a.test")}
	for name, test := range map[string]struct {
		step  int
		pass  time.Duration
		times int
		want  bool // it is resumed
	}{
		"set forward":                    {day, time.Minute, 3, true},
		"set back":                       {-day, time.Minute, 3, true},
		"set back, and a time passes":    {-day, time.Hour, 3, false},
		"set forward, and a time passes": {day, time.Hour, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			now, step := &clock{now: began}, 0
			tickets := tlsterm.NewTickets(&tlsterm.TicketsConfig{Rotate: time.Hour, Keep: 3, Now: func() time.Time {
				return stepped(now.Now(), step)
			}})
			s := newServer(t, tlsterm.Config{Name: "web", Certificates: pairs, Tickets: tickets})
			cfg := &tls.Config{ServerName: "a.test", RootCAs: a.pool(), ClientSessionCache: tls.NewLRUClientSessionCache(4)}
			_, cerr, serr := meet(t, s, cfg)
			must(t, errors.Join(cerr, serr))
			for range test.times {
				step += test.step
				now.pass(test.pass)
				_, cerr, serr := meet(t, s, &tls.Config{ServerName: "a.test", RootCAs: a.pool()})
				must(t, errors.Join(cerr, serr))
			}
			seen, cerr, serr := meet(t, s, cfg)
			must(t, errors.Join(cerr, serr))
			if seen.DidResume != test.want {
				t.Errorf("resumed: %v, want %v", seen.DidResume, test.want)
			}
		})
	}
}

// TestTickets: a client's ticket is taken after a reload and a rotation. It is not taken
// without end, nor at another listener or process, nor when other authorities decide
// which clients are accepted.
func TestTickets(t *testing.T) {
	a, clients := newAuthority(t, "test"), newAuthority(t, "clients")
	pairs := []tlsterm.Pair{a.pair("a.test")}
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
				tickets := tlsterm.NewTickets(&tlsterm.TicketsConfig{Rotate: time.Hour, Keep: 3, Now: now.Now})
				before := newServer(t, tlsterm.Config{Name: "web", Certificates: pairs, ClientCA: test.ca, Tickets: tickets})
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
				after := newServer(t, tlsterm.Config{Name: test.then, Certificates: pairs, ClientCA: test.thenCA, Tickets: tickets})
				for range test.times {
					now.pass(test.pass)
					// Another client's handshake, which reads the clock.
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
