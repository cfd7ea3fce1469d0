package lanes

import (
	"net/netip"
	"testing"

	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestAdoptedAmbiguous: a hash of two names, and an address of two endpoints, are of none.
func TestAdoptedAmbiguous(t *testing.T) {
	t.Parallel()

	one := new(Upstream)
	names := byHash(map[string]*Upstream{"one": one})
	if names[record.HashOf("one")] != one || names[record.HashOf("two")] != nil || names[record.Tag{}.Upstream] != nil {
		t.Error("a name is not found, or one that there is not, or none is")
	}
	for range 2 { // as if there were names of the same hash
		add(names, record.HashOf("one"), one)
		if names[record.HashOf("one")] != nil {
			t.Error("the hash of two names is guessed")
		}
	}

	of := router.NewUpstream("one", func(*router.Endpoint) {})
	var endpoints []*router.Endpoint
	for id, address := range map[string]string{"six": "[2001:db8:0:0::1]:80", "first": "192.0.2.1:80", "second": "192.0.2.1:80", "name": "localhost:80"} {
		at, err := sockopt.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		e, _, err := of.Endpoint(id, at, lb.EndpointConfig{ID: id, Weight: 1})
		if err != nil {
			t.Fatal(err)
		}
		endpoints = append(endpoints, e)
	}
	all := byAddress(endpoints)
	if six := all[netip.MustParseAddrPort("[2001:db8::1]:80")]; len(all) != 2 || six == nil || six.Name() != "six" || all[netip.MustParseAddrPort("192.0.2.1:80")] != nil {
		t.Errorf("%v", all)
	}
}
