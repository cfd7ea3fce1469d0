package server

import (
	"net/netip"
	"testing"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestAdoptedAmbiguous: a hash of two names, and an address of two endpoints, are of none.
func TestAdoptedAmbiguous(t *testing.T) {
	t.Parallel()

	names := make(map[uint64]*upstream)
	one := &upstream{cfg: &config.Upstream{Name: "one"}}
	addName(names, "one", one)
	if names[worker.LaneHash("one")] != one || names[worker.LaneHash("two")] != nil || names[worker.LaneTag{}.Upstream] != nil {
		t.Error("a name is not found, or one that there is not, or none is")
	}
	for range 2 { // as if there were names of the same hash
		addName(names, "one", one)
		if names[worker.LaneHash("one")] != nil {
			t.Error("the hash of two names is guessed")
		}
	}

	of := router.NewUpstream("one", func(*router.Endpoint) {})
	add := func(id, address string) *router.Endpoint {
		at, err := sockopt.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		e, _, err := of.Endpoint(id, at, lb.EndpointConfig{ID: id, Weight: 1})
		if err != nil {
			t.Fatal(err)
		}
		one.order = append(one.order, &member{endpoint: e})
		return e
	}
	six := add("six", "[2001:db8:0:0::1]:80")
	add("first", "192.0.2.1:80")
	add("second", "192.0.2.1:80")
	add("name", "localhost:80")
	all := one.byAddress()
	if len(all) != 2 || all[netip.MustParseAddrPort("[2001:db8::1]:80")] != six || all[netip.MustParseAddrPort("192.0.2.1:80")] != nil {
		t.Errorf("%v", all)
	}
}
