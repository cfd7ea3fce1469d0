package discovery_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/discovery"
)

func TestWeightsOfServices(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []uint16
		want    []int
	}{
		{"equal", []uint16{65535, 65535}, []int{1, 1}},
		{"all none", []uint16{0, 0, 0}, []int{1, 1, 1}},
		{"none among some", []uint16{0, 100}, []int{1, 256}},
		{"exact", []uint16{10, 20, 70}, []int{1, 2, 7}},
		{"large", []uint16{65535, 1}, []int{256, 1}},
		{"nearest", []uint16{1000, 999, 500}, []int{2, 2, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var services []discovery.Service
			for i, w := range c.weights {
				services = append(services, discovery.Service{Target: string(rune('a' + i)), Weight: w, Port: 1})
			}
			var got []int
			for _, e := range discovery.Weighted(services, addressesOf(len(c.weights))) {
				got = append(got, e.Weight)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// addressesOf gives the targets a, b, ... an address each.
func addressesOf(n int) map[string][]netip.Addr {
	found := map[string][]netip.Addr{}
	for i := range n {
		found[string(rune('a'+i))] = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}
	}
	return found
}

func TestWeightedProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		found := map[string][]netip.Addr{}
		var services []discovery.Service
		for i := range rapid.IntRange(0, 12).Draw(t, "services") {
			target := string(rune('a' + i))
			services = append(services, discovery.Service{
				Target: target, Port: 5432, Priority: rapid.SampledFrom([]uint16{1, 2, 3}).Draw(t, "priority"),
				Weight: rapid.Uint16().Draw(t, "weight"),
			})
			for range rapid.IntRange(0, 3).Draw(t, "addresses") {
				found[target] = append(found[target], netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "address")}))
			}
		}
		got := discovery.Weighted(services, found)
		shuffled := rapid.Permutation(services).Draw(t, "order")
		if again := discovery.Weighted(shuffled, found); !slices.Equal(got, again) {
			t.Fatalf("the order of records matters: %v and %v", got, again)
		}
		seen := map[string]bool{}
		for i, e := range got {
			switch {
			case seen[e.Address]:
				t.Fatalf("%s is there twice", e.Address)
			case e.Weight < 1 || e.Weight > discovery.MaxWeight:
				t.Fatalf("weight %d", e.Weight)
			case e.Backup && got[0].Backup:
				t.Fatal("all are backup")
			case i > 0 && got[i-1].Backup && !e.Backup:
				t.Fatal("backups are not last")
			}
			seen[e.Address] = true
		}
		for _, addresses := range found {
			for _, a := range addresses {
				if !seen[netip.AddrPortFrom(a, 5432).String()] {
					t.Fatalf("%v is missing", a)
				}
			}
		}
	})
}
