package router_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A limited listener has every existing limit, each with room for two clients at once.
type limited struct {
	t        *testing.T
	door     *router.ListenerState
	process  *limit.Rate
	sources  *limit.Sources
	admitter worker.Admitter
	nudges   int
	clock    int64
}

func newLimited(t *testing.T, cfg limit.SourcesConfig, access limit.Access) *limited {
	l := &limited{t: t, door: new(router.ListenerState), process: limit.NewRate(1, 2), clock: 1e9}
	l.door.Rate.Set(1, 2)
	l.door.Connections.Set(2)
	var err error
	cfg.Entries = 64
	if l.sources, err = limit.NewSources(cfg); err != nil {
		t.Fatal(err)
	}
	l.admitter = router.NewListener(&router.ListenerConfig{
		State: l.door, Access: access, Sources: l.sources, Process: l.process, Wake: func() { l.nudges++ },
	}).Service().Admitter
	return l
}

// comes has a client come from an address, given by a PROXY header or by the connection.
func (l *limited) comes(from string, withHeader bool) (*worker.Client, error) {
	peer := source.TCP(netip.AddrPortFrom(netip.MustParseAddr(from), 1111))
	c := worker.NewClient(peer, netip.AddrPort{})
	if withHeader {
		c = worker.NewClient(source.TCP(netip.MustParseAddrPort("198.51.100.1:1")), netip.AddrPort{})
	}
	if err := l.admitter.Admit(c, !withHeader, l.clock); err != nil || !withHeader {
		return c, err
	}
	c.Header = proxyproto.Info{Version: 1, Source: peer.AddrPort(), Destination: netip.MustParseAddrPort("198.51.100.2:2")}
	err := l.admitter.AdmitSource(c, l.clock)
	if err != nil {
		l.admitter.Released(c.AdmissionToken)
	}
	return c, err
}

// used has the parts of each shared limit that clients have used up.
type used struct {
	listener, process time.Duration
	connections       int64
	ofSources         int
}

func (l *limited) used() used {
	return used{l.door.Rate.Until(l.clock), l.process.Until(l.clock), l.door.Connections.InUse(), l.sources.Stats().Connections}
}

// TestRefusedClientsUseNothing: a client that is refused for its source, by any rule and with or
// without a header, uses up no limit that others share, nor more of its own.
func TestRefusedClientsUseNothing(t *testing.T) {
	const guest, other = "10.0.0.1", "10.0.0.2"
	deny := limit.Access{Deny: source.NewSet([]source.Rule{source.Prefix(netip.MustParsePrefix(guest + "/32"))})}
	allow := limit.Access{Allow: source.NewSet([]source.Rule{source.Prefix(netip.MustParsePrefix(other + "/32"))})}
	for name, x := range map[string]struct {
		cfg    limit.SourcesConfig
		access limit.Access
		comes  int // of the guest, that are served
		want   error
	}{
		"deny":                             {access: deny, want: limit.ErrDenied},
		"allow":                            {access: allow, want: limit.ErrDenied},
		"deny, with limits of each source": {cfg: limit.SourcesConfig{Connections: 1, PerSecond: 1, Burst: 1}, access: deny, want: limit.ErrDenied},
		"per_source":                       {cfg: limit.SourcesConfig{Connections: 1}, comes: 1, want: limit.ErrSourceConnections},
		"per_source before its rate":       {cfg: limit.SourcesConfig{Connections: 1, PerSecond: 1, Burst: 2}, comes: 1, want: limit.ErrSourceConnections},
		"per_source_per_second":            {cfg: limit.SourcesConfig{PerSecond: 1, Burst: 1}, comes: 1, want: limit.ErrSourceRate},
	} {
		for _, withHeader := range []bool{false, true} {
			l := newLimited(t, x.cfg, x.access)
			var in []*worker.Client
			for range x.comes {
				c, err := l.comes(guest, withHeader)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				in = append(in, c)
			}
			before := l.used()
			for i := range 100 {
				if _, err := l.comes(guest, withHeader); err != x.want {
					t.Fatalf("%s: client %d is refused for %v, want %v", name, i, err, x.want)
				}
				if got := l.used(); got != before {
					t.Fatalf("%s, from a header %v: after %d clients that are refused %+v is used up, and was %+v", name, withHeader, i+1, got, before)
				}
			}
			// Exactly the rest is left for others.
			for range 2 - x.comes {
				if c, err := l.comes(other, withHeader); err != nil {
					t.Errorf("%s: another source: %v", name, err)
				} else {
					in = append(in, c)
				}
				l.sources.Set(0, 0, 0)
			}
			if got, want := l.used(), (used{time.Second, time.Second, 2, l.sources.Stats().Connections}); got != want {
				t.Errorf("%s: after two that are served %+v is used up, want %+v", name, got, want)
			}
			for _, c := range in {
				l.admitter.Released(c.AdmissionToken)
			}
			if l.door.Connections.InUse() != 0 || l.sources.Stats().Connections != 0 {
				t.Errorf("%s: in the end %+v", name, l.used())
			}
		}
	}
}

// TestRateThatComesBack: a client takes the last token, and then its header has a source that is
// refused. Accepting continues.
func TestRateThatComesBack(t *testing.T) {
	deny := limit.Access{Deny: source.NewSet([]source.Rule{source.All()})}
	l := newLimited(t, limit.SourcesConfig{}, deny)
	l.door.Rate.Spend(l.clock)
	c := worker.NewClient(source.TCP(netip.MustParseAddrPort("10.0.0.1:1")), netip.AddrPort{})
	if err := l.admitter.Admit(c, false, l.clock); err != nil {
		t.Fatal(err)
	}
	if err := l.admitter.CanAccept(l.clock); err != limit.ErrRate {
		t.Fatalf("room for a third client: %v", err)
	}
	if err := l.admitter.AdmitSource(c, l.clock); err != limit.ErrDenied {
		t.Fatal(err)
	}
	if l.nudges != 1 || l.admitter.CanAccept(l.clock) != nil {
		t.Errorf("woken %d times, and there is room: %v", l.nudges, l.admitter.CanAccept(l.clock))
	}
}
