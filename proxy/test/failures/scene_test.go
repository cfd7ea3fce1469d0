package failures

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// A scene is a load balancer with two endpoints, one of which is the victim. A session with the
// other one echoes continuously.
type scene struct {
	*loadbalancer.Instance
	manner
	here, there *netns.Host // there is the victim's host
	link        netns.Link
	victim      *netns.Backend
	own         netip.Addr // the victim's address, which has a route
	aside       *bystander
}

// play sets up a scene. The configuration's further parts are those of the listener l and of the
// upstream u.
func play(t *testing.T, m manner, victim netns.Manner, listener, upstream string) *scene {
	t.Helper()
	s := &scene{manner: m, here: netns.Here(t), there: netns.New(t), own: netip.MustParseAddr("10.99.0.1")}
	s.link = s.here.Join(s.there)
	s.there.Address(s.own)
	s.here.Route(s.own, s.link.Far)
	s.victim = s.there.Backend("victim", victim, netip.AddrPortFrom(s.own, 0))
	elsewhere := netns.New(t)
	other := elsewhere.Backend("other", netns.Echo, netip.AddrPortFrom(s.here.Join(elsewhere).Far, 0))
	for _, b := range []*netns.Backend{s.victim, other} { // until their links are up
		c, err := net.DialTimeout("tcp", b.Addr.String(), condition.Patience)
		switch {
		case err == nil:
			c.Close()
		case !errors.Is(err, syscall.ECONNRESET): // connected by a victim that resets
			t.Fatal(err)
		}
	}
	s.Instance = serve(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, %s %s}, {name: m, bind: "127.0.0.1:0", upstream: m}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: victim}, {address: %q, name: other}], %s}
  - {name: m, endpoints: [{address: %[4]q, name: check}], health_check: off}`, m.listener, listener, s.victim.Addr, other.Addr, upstream))
	s.aside = watch(t, s.session("other"))
	return s
}

func (s *scene) ask() (*client, error) { return s.dial(s.T, s.At("l")) }

// session returns a client of a certain endpoint. The two take turns.
func (s *scene) session(of string) *client {
	s.T.Helper()
	for range 4 {
		c, err := s.ask()
		switch {
		case err == nil && c.of == of:
			return c
		case err == nil:
			c.Close()
		}
	}
	s.T.Fatalf("no client is served by %s", of)
	return nil
}

// served requires that new clients are served, and none by the victim.
func (s *scene) served(clients int) {
	s.T.Helper()
	for range clients {
		c, err := s.ask()
		if err != nil || c.of != "other" {
			s.T.Fatalf("a new client: %v, %v; want it served by the other endpoint", c, err)
		}
		c.Close()
	}
}

func (s *scene) ejected() {
	s.T.Helper()
	s.Logs("upstream=u endpoint=victim", "state=ejected")
	if e := s.Endpoint("u", "other"); e.State != admin.Up || e.Failures != 0 {
		s.T.Errorf("the other endpoint: %+v", e)
	}
}

// returns waits until the victim, which works again, has clients again.
func (s *scene) returns() {
	s.T.Helper()
	s.Until("the victim has clients again", func() bool {
		c, err := s.ask()
		if err != nil {
			return false
		}
		defer c.Close()
		return c.of == "victim"
	})
	if e := s.Endpoint("u", "victim"); e.State != admin.Up || e.Breaker != "" {
		s.T.Errorf("the victim: %+v", e)
	}
	s.untouched()
}

// untouched fails the test unless the session with the other endpoint echoes.
func (s *scene) untouched() {
	s.T.Helper()
	before := s.aside.echoes.Load()
	s.Until("the session with the other endpoint echoes", func() bool {
		return s.aside.echoes.Load() > before+2 || s.aside.failed.Load() != nil
	})
	if err := s.aside.failed.Load(); err != nil {
		s.T.Fatalf("the session with the other endpoint: %v", *err)
	}
}

// A bystander is a session that echoes until the end of the test.
type bystander struct {
	echoes atomic.Int64
	failed atomic.Pointer[error]

	longest time.Duration // the longest time of an echo
}

func watch(t *testing.T, c *client) *bystander {
	b := new(bystander)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(5 * time.Millisecond); ; b.echoes.Add(1) {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
			began := time.Now()
			_ = c.SetDeadline(began.Add(condition.Patience))
			if err := c.echo(fmt.Sprintf("echo %d", b.echoes.Load())); err != nil {
				b.failed.Store(&err)
				return
			}
			b.longest = max(b.longest, time.Since(began))
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		t.Logf("%d echoes meanwhile, each in %v at most", b.echoes.Load(), b.longest)
		if err := b.failed.Load(); err != nil {
			t.Errorf("the session with the other endpoint: %v", *err)
		}
	})
	return b
}
