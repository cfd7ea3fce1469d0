package limit_test

import (
	"fmt"
	"net/netip"

	"github.com/penstock/penstock/proxy/limit"
)

func ExampleSources() {
	sources, err := limit.NewSources(limit.SourcesConfig{Connections: 1, PrefixV4: 24})
	if err != nil {
		fmt.Println(err)
		return
	}
	const now = 0 // nanoseconds of a monotonic clock
	first, err := sources.Admit(netip.MustParseAddr("192.0.2.1"), now)
	fmt.Println(err)
	_, err = sources.Admit(netip.MustParseAddr("192.0.2.2"), now) // of the same /24
	fmt.Println(err)
	sources.Leave(first)
	_, err = sources.Admit(netip.MustParseAddr("192.0.2.2"), now)
	fmt.Println(err)
	// Output:
	// <nil>
	// connection limit of the source reached
	// <nil>
}

func ExampleAccess() {
	access := limit.Access{
		Allow: limit.NewPrefixes([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}),
		Deny:  limit.NewPrefixes([]netip.Prefix{netip.MustParsePrefix("192.0.2.128/25")}),
	}
	for _, addr := range []string{"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.200", "198.51.100.1"} {
		fmt.Println(addr, access.Check(netip.MustParseAddr(addr)))
	}
	// Output:
	// 192.0.2.1 <nil>
	// ::ffff:192.0.2.1 <nil>
	// 192.0.2.200 address not allowed
	// 198.51.100.1 address not allowed
}
