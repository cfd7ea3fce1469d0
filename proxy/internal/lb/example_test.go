package lb_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/penstock/penstock/proxy/internal/lb"
)

func Example() {
	var members []lb.Member
	for _, id := range []string{"10.0.0.11:5432", "10.0.0.12:5432"} {
		e := lb.NewEndpoint(lb.EndpointConfig{ID: id})
		members = append(members, lb.Member{Endpoint: e, Weight: 1})
	}
	set := lb.NewSet(members, &lb.Config{Policy: lb.First}, nil)
	set.Attach()
	defer set.Detach()

	members[0].Endpoint.SetHealthy(false) // the result of a health check
	e, err := set.Pick(&lb.Request{Source: netip.MustParseAddrPort("192.0.2.1:40000")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.ID(), e.Active())
	e.Release() // when the session has ended

	// Output: 10.0.0.12:5432 1
}

// A tenth of the clients tries the new version.
func ExampleSplit() {
	split, err := lb.NewWeightedSplit(90, 10)
	if err != nil {
		log.Fatal(err)
	}
	var counts [2]float64
	for range 1000 {
		counts[split.Next()]++
	}
	fmt.Printf("%.0f %% and %.0f %%\n", counts[0]/10, counts[1]/10)

	// Output: 90 % and 10 %
}
