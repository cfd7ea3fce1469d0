package lanes

import (
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestAdoptedAmbiguous: a hash that two names share finds nothing. An address that two endpoints share finds
// nothing either, unless the session knows the name of its endpoint. A name finds nothing if its endpoint has
// another address by now.
func TestAdoptedAmbiguous(t *testing.T) {
	t.Parallel()

	one := new(Upstream)
	names := byHash(map[string]*Upstream{"one": one})
	if names[record.HashOf("one")] != one || names[record.HashOf("two")] != nil || names[0] != nil {
		t.Error("a name is not found, or one that there is not, or none is")
	}
	for range 2 { // as if there were names of the same hash
		add(names, record.HashOf("one"), one)
		if names[record.HashOf("one")] != nil {
			t.Error("the hash of two names is guessed")
		}
	}

	of := router.NewUpstream("one", func(*router.Endpoint) {})
	var list []*router.Endpoint
	for id, address := range map[string]string{"six": "[2001:db8:0:0::1]:80", "first": "192.0.2.1:80", "second": "192.0.2.1:80", "name": "localhost:80"} {
		at, err := sockopt.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		e, _, err := of.Endpoint(id, at, lb.EndpointConfig{ID: id, Weight: 1})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	all := newEndpoints(list)
	for _, tt := range []struct{ name, at, want string }{
		{"", "[2001:db8::1]:80", "six"}, {"", "192.0.2.1:80", ""}, {"second", "192.0.2.1:80", "second"}, {"name", "127.0.0.1:80", "name"}, {"first", "192.0.2.9:80", ""}, {"first", "[2001:db8::1]:80", "six"},
	} {
		hash, got := uint32(0), ""
		if tt.name != "" {
			hash = record.HashOf(tt.name)
		}
		if e := all.find(hash, netip.MustParseAddrPort(tt.at)); e != nil {
			got = e.Name()
		}
		if got != tt.want {
			t.Errorf("%q at %s is %q, want %q", tt.name, tt.at, got, tt.want)
		}
	}
}

// TestUnknownListener: sessions of a listener that is not in the configuration keep their timeouts. If the
// timeouts are not known, the sessions have the longest idle timeout.
func TestUnknownListener(t *testing.T) {
	t.Parallel()

	a := newAdopter(&Lanes{Places: func() *Places { return &Places{Idle: time.Hour} }})
	own := record.Timeouts{Known: true, Idle: time.Minute, HalfClose: 2 * time.Second, Lifetime: 3 * time.Hour, Jitter: 0.5}
	for _, tt := range []struct{ is, want record.Timeouts }{{own, own}, {record.Timeouts{}, record.Timeouts{Known: true, Idle: time.Hour}}, {record.Timeouts{Known: true}, record.Timeouts{Known: true}}} {
		w := way{from: a.unknownListener(tt.is)}
		if got := record.TimeoutsOf(a.adoption(w).Limits()); got != tt.want {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
	}
}
