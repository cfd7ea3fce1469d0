package router_test

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/match"
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
	l := &limited{t: t, door: router.NewListenerState("", nil), process: new(limit.Rate), clock: 1e9}
	l.process.Set(2)
	l.door.Rate.Set(2)
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
		"deny, with limits of each source": {cfg: limit.SourcesConfig{Connections: 1, PerSecond: 1}, access: deny, want: limit.ErrDenied},
		"per_source":                       {cfg: limit.SourcesConfig{Connections: 1}, comes: 1, want: limit.ErrSourceConnections},
		"per_source before its rate":       {cfg: limit.SourcesConfig{Connections: 1, PerSecond: 2}, comes: 1, want: limit.ErrSourceConnections},
		"per_source_per_second":            {cfg: limit.SourcesConfig{PerSecond: 1}, comes: 1, want: limit.ErrSourceRate},
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
				l.sources.Set(0, 0)
			}
			if got, want := l.used(), (used{time.Second / 2, time.Second / 2, 2, l.sources.Stats().Connections}); got != want {
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

// TestDoorInTurn: of clients beyond a listener's limit, each waits for its turn. A place may be
// free for a client that was woken and has not looked yet. No client that comes meanwhile is
// before that one.
func TestDoorInTurn(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	door := r.listener.Config().State
	door.Connections.Set(1)
	admitter := r.listener.Service().Admitter
	admit := func() (*router.Search, *worker.Client) {
		s, c := r.search()
		if err := admitter.Admit(c, true, r.clock); err != nil {
			t.Fatal(err)
		}
		return s, c
	}
	next := func(s *router.Search, want worker.Action, who string) {
		t.Helper()
		if got := s.Next(r.clock).Action; got != want {
			t.Errorf("%s: %v, want %v", who, got, want)
		}
	}
	first, c := admit()
	next(first, worker.Connect, "the first")
	second, c2 := admit()
	third, c3 := admit()
	next(second, worker.Park, "the second, which is one too many")
	first.Close()
	admitter.Released(c.AdmissionToken)
	next(third, worker.Park, "the third, while there is a place for the second")
	next(second, worker.Connect, "the second")
	second.Close()
	admitter.Released(c2.AdmissionToken)
	next(third, worker.Connect, "the third")
	third.Close()
	admitter.Released(c3.AdmissionToken)
	if n := door.Connections.InUse(); n != 0 {
		t.Errorf("%d places are taken in the end", n)
	}
}

// TestDoorThatWidens: clients beyond a listener's limit come in once the limit is higher, or there is none.
func TestDoorThatWidens(t *testing.T) {
	for _, limit := range []int64{3, 0} {
		r := newRig(t, 1, router.SnapshotConfig{}, nil)
		door := r.listener.Config().State
		door.Limit(1, 0)
		var came []*router.Search
		for i, want := range []worker.Action{worker.Connect, worker.Park, worker.Park} {
			s, c := r.search()
			if err := r.listener.Service().Admitter.Admit(c, true, r.clock); err != nil {
				t.Fatal(err)
			}
			if step := s.Next(r.clock); step.Action != want {
				t.Errorf("number %d: %v, want %v", i, step.Action, want)
			}
			came = append(came, s)
		}
		for i, s := range came[1:] { // the first of them may look each time that one comes
			if step := s.Next(r.clock); step.Action != worker.Park {
				t.Errorf("number %d: %v", i+1, step.Action)
			}
		}
		door.Limit(limit, 0)
		for i, s := range came {
			if step := s.Next(r.clock); step.Action != worker.Connect {
				t.Errorf("a limit of %d: number %d: %v", limit, i, step.Action)
			}
			s.Close()
		}
	}
}

// The sources that a client may have.
const (
	v4      = "10.1.2.3"
	v6      = "2001:db8::1"
	user    = "user 1000 of group 100"
	other   = "user 1001 of group 100"
	unknown = "unknown"
)

var all = []string{v4, v6, user, other}

var known = map[string]source.Source{
	v4:      source.TCP(netip.MustParseAddrPort("10.1.2.3:1111")),
	v6:      source.TCP(netip.MustParseAddrPort("[2001:db8::1]:1111")),
	user:    source.Unix(source.Credentials{UID: 1000, GID: 100, PID: 1}),
	other:   source.Unix(source.Credentials{UID: 1001, GID: 100, PID: 2}),
	unknown: {},
}

// A visitor is a client as it comes, with the header that it sends, if any.
type visitor struct {
	name   string
	peer   source.Source
	at     string // which source the peer is
	header []byte
	says   string // the source in the header; empty: none
	is     string // which source it is if the header is believed
}

// visitors are every kind of peer without a header, and each one with every kind of header.
func visitors() (list []visitor) {
	mapped := source.TCP(netip.MustParseAddrPort("[::ffff:10.1.2.3]:2222"))
	v2 := func(command, family byte, size int) []byte {
		return append([]byte("\r\n\r\n\x00\r\nQUIT\n"), append([]byte{command, family, 0, byte(size)}, make([]byte, size)...)...)
	}
	tcp := func(version int, of string) []byte {
		return proxyproto.Append(nil, version, &proxyproto.Connection{Source: known[of].AddrPort(), Destination: netip.MustParseAddrPort("192.0.2.2:2")})
	}
	headers := []struct {
		name  string
		bytes []byte
		says  string
	}{
		{"none", nil, ""},
		{"v1 TCP4", tcp(1, v4), v4},
		{"v1 TCP6", tcp(1, v6), v6},
		{"v1 TCP6 mapped", []byte("PROXY TCP6 ::ffff:10.1.2.3 ::1 1111 2\r\n"), v4},
		{"v1 UNKNOWN", []byte("PROXY UNKNOWN\r\n"), ""},
		{"v1 UNKNOWN with an address", []byte("PROXY UNKNOWN 10.1.2.3 10.1.2.4 1 2\r\n"), ""},
		{"v2 IPv4", tcp(2, v4), v4},
		{"v2 IPv6", tcp(2, v6), v6},
		{"v2 LOCAL", v2(0x20, 0x00, 0), ""},
		{"v2 LOCAL with an address", v2(0x20, 0x11, 12), ""},
		{"v2 of a unix socket", v2(0x21, 0x31, 216), ""},
		{"v2 unspecified", v2(0x21, 0x00, 0), ""},
	}
	for _, p := range append(all, unknown, "mapped") {
		peer, at := known[p], p
		if p == "mapped" {
			peer, at = mapped, v4
		}
		for _, h := range headers {
			list = append(list, visitor{p + ", header " + h.name, peer, at, h.bytes, h.says, cmp.Or(h.says, at)})
		}
	}
	return list
}

// client is the visitor once package core has looked at its header, if the policy expects
// one.
func (v *visitor) client(t *testing.T, p *proxyproto.Policy) *worker.Client {
	t.Helper()
	to := netip.AddrPort{}
	if v.peer.AddrPort().IsValid() {
		to = netip.MustParseAddrPort("192.0.2.9:9")
	}
	c := worker.NewClient(v.peer, to)
	if v.header == nil || p == nil || !p.Expects(v.peer) {
		return c
	}
	if n, err := p.Parse(v.header, &c.Header); err != nil || n != len(v.header) {
		t.Fatalf("%s: %d, %v", v.name, n, err)
	}
	return c
}

// admitted returns whether a client is admitted, and has it leave again if leaves is set.
func admitted(t *testing.T, cfg router.ListenerConfig, c *worker.Client, leaves bool) error {
	t.Helper()
	cfg.State, cfg.Wake = router.NewListenerState("", nil), func() {}
	a := router.NewListener(&cfg).Service().Admitter
	identified := c.Header.Version == 0
	err := a.Admit(c, identified, 1)
	if err == nil && !identified {
		err = a.AdmitSource(c, 1)
	}
	if leaves {
		a.Released(c.AdmissionToken)
	}
	return err
}

// rules are all kinds of them, and the sources to which they apply.
var rules = []struct {
	rule source.Rule
	of   []string
}{
	{source.All(), all},
	{source.Prefix(netip.MustParsePrefix("10.0.0.0/8")), []string{v4}},
	{source.Prefix(netip.MustParsePrefix("0.0.0.0/0")), []string{v4}},
	{source.Prefix(netip.MustParsePrefix("2001:db8::/32")), []string{v6}},
	{source.Prefix(netip.MustParsePrefix("::/0")), []string{v6}},
	{source.UnixClients(), []string{user, other}},
	{source.UnixUser(1000), []string{user}},
	{source.UnixUser(1001), []string{other}},
	{source.UnixGroup(100), []string{user, other}},
	{source.UnixUser(0), nil},
	{source.Prefix(netip.MustParsePrefix("192.0.2.0/24")), nil},
}

// TestSources holds every rule against every kind of client, by itself and behind every kind
// of header.
func TestSources(t *testing.T) {
	believed := new(proxyproto.Policy)
	for _, v := range visitors() {
		for _, r := range rules {
			set := source.NewSet([]source.Rule{r.rule})
			in := slices.Contains(r.of, v.is)
			check := func(what string, err error, in bool) {
				t.Helper()
				want := error(nil)
				switch {
				case v.is == unknown:
					want = source.ErrUnknown
				case !in:
					want = limit.ErrDenied
				}
				if err != want {
					t.Errorf("%s: %s %v: %v, want %v", v.name, what, r.rule, err, want)
				}
			}
			check("allow", admitted(t, router.ListenerConfig{Access: limit.Access{Allow: set}}, v.client(t, believed), true), in)
			check("deny", admitted(t, router.ListenerConfig{Access: limit.Access{Deny: set}}, v.client(t, believed), true), !in)
			table, err := match.New([]match.Route{{Source: []source.Rule{r.rule}}})
			if err != nil {
				t.Fatal(err)
			}
			c := v.client(t, believed)
			if got := table.Find(&match.Client{Source: c.Source()}); (got == 0) != in {
				t.Errorf("%s: match %v: route %d", v.name, r.rule, got)
			}
			v.believedFrom(t, r.rule, r.of)
		}
	}
}

// believedFrom holds a rule of whose headers are believed against the peer.
func (v *visitor) believedFrom(t *testing.T, rule source.Rule, of []string) {
	t.Helper()
	c := v.client(t, &proxyproto.Policy{From: source.NewSet([]source.Rule{rule})})
	want := v.peer // as it is
	if slices.Contains(of, v.at) && v.says != "" {
		want = known[v.says]
	}
	if c.Source() != want {
		t.Errorf("%s: from %v: it is %v, want %v", v.name, rule, c.Source(), want)
	}
}

// TestSourcesAreCounted: two clients of one source are one too many, with or without a header.
// Clients of different sources are not. A client whose source is not known is not admitted.
func TestSourcesAreCounted(t *testing.T) {
	believed := new(proxyproto.Policy)
	for _, a := range visitors() {
		for _, b := range visitors() {
			sources, err := limit.NewSources(limit.SourcesConfig{Connections: 1, Entries: 64})
			if err != nil {
				t.Fatal(err)
			}
			rate, err := limit.NewSources(limit.SourcesConfig{PerSecond: 1, Entries: 64})
			if err != nil {
				t.Fatal(err)
			}
			for by, s := range map[error]*limit.Sources{limit.ErrSourceConnections: sources, limit.ErrSourceRate: rate} {
				cfg := router.ListenerConfig{Sources: s}
				first, second := admitted(t, cfg, a.client(t, believed), s == rate), admitted(t, cfg, b.client(t, believed), false)
				var wantFirst, want error
				if a.is == unknown {
					wantFirst = source.ErrUnknown
				}
				switch {
				case b.is == unknown:
					want = source.ErrUnknown
				case a.is == b.is:
					want = by
				}
				if first != wantFirst || second != want {
					t.Errorf("%s and then %s: %v, %v, want %v, %v", a.name, b.name, first, second, wantFirst, want)
				}
			}
			x, y := health.SourceOf(a.client(t, believed).Source(), [2]int{}), health.SourceOf(b.client(t, believed).Source(), [2]int{})
			if (x == y) != (a.is == b.is) || (x == health.Unnamed) != (a.is == unknown) {
				t.Errorf("%s and %s are the sources %x and %x", a.name, b.name, x, y)
			}
		}
	}
}

// TestSourcesAreSentOn: the consistent policies send an address to one endpoint, with or without
// a header, and a client without an address to any. Endpoints get the address in the header,
// where there is one.
func TestSourcesAreSentOn(t *testing.T) {
	for version := 1; version <= 2; version++ {
		r := newRig(t, 8, router.SnapshotConfig{SendProxy: version, BySource: true}, nil)
		r.use(&lb.Config{Policy: lb.SourceIP})
		went := map[string]map[string]bool{}
		for _, v := range visitors() {
			if v.is == unknown {
				continue // refused before
			}
			for range 20 {
				c := v.client(t, new(proxyproto.Policy))
				s := r.listener.NewSearch()
				s.Begin(c, r.clock)
				step := s.Next(r.clock)
				if went[v.is] == nil {
					went[v.is] = map[string]bool{}
				}
				went[v.is][step.Address.AddrPort.String()] = true
				v.told(t, version, s.ProxyHeader(nil))
				s.Close()
			}
		}
		for is, at := range went {
			if (len(at) == 1) != known[is].AddrPort().IsValid() {
				t.Errorf("%s was sent to %d endpoints", is, len(at))
			}
		}
	}
}

// told checks that the header to an endpoint has the source that it should have.
func (v *visitor) told(t *testing.T, version int, b []byte) {
	t.Helper()
	var got proxyproto.Info
	if n, err := (*proxyproto.Policy)(nil).Parse(b, &got); err != nil || n != len(b) {
		t.Fatalf("%s: %d of %d, %v", v.name, n, len(b), err)
	}
	local := version == 2 && strings.Contains(v.name, "LOCAL") // passed on
	want := known[v.is].AddrPort()
	if local {
		want = netip.AddrPort{}
	}
	if got.Source.Addr() != want.Addr() || got.Local != (version == 2 && !want.IsValid()) {
		t.Errorf("%s: version %d has %+v, want %v", v.name, version, got, want)
	}
	if want.IsValid() && strings.Contains(string(b), "UNKNOWN") {
		t.Errorf("%s: %q", v.name, b)
	}
}
