package limit_test

import (
	"fmt"
	"net/netip"

	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/source"
)

func client(addr string) source.Source { return source.TCP(netip.MustParseAddrPort(addr)) }

func ExampleSources() {
	sources, err := limit.NewSources(limit.SourcesConfig{Connections: 1, PrefixV4: 24})
	if err != nil {
		fmt.Println(err)
		return
	}
	const now = 0 // nanoseconds of a monotonic clock
	first, err := sources.Admit(client("192.0.2.1:1111"), now)
	fmt.Println(err)
	_, err = sources.Admit(client("192.0.2.2:2222"), now) // of the same /24
	fmt.Println(err)
	sources.Leave(first)
	_, err = sources.Admit(client("192.0.2.2:2222"), now)
	fmt.Println(err)
	// Output:
	// <nil>
	// connection limit of the source reached
	// <nil>
}

func ExampleAccess() {
	access := limit.Access{
		Allow: source.NewSet([]source.Rule{source.Prefix(netip.MustParsePrefix("192.0.2.0/24")), source.UnixUser(1000)}),
		Deny:  source.NewSet([]source.Rule{source.Prefix(netip.MustParsePrefix("192.0.2.128/25"))}),
	}
	for _, of := range []source.Source{
		client("192.0.2.1:1"), client("[::ffff:192.0.2.1]:1"), client("192.0.2.200:1"), client("198.51.100.1:1"),
		source.Unix(source.Credentials{UID: 1000, GID: 1000, PID: 77}), source.Unix(source.Credentials{}),
		{},
	} {
		fmt.Println(of, access.Check(of))
	}
	// Output:
	// 192.0.2.1:1 <nil>
	// 192.0.2.1:1 <nil>
	// 192.0.2.200:1 source not allowed
	// 198.51.100.1:1 source not allowed
	// unix:uid=1000,gid=1000,pid=77 <nil>
	// unix:uid=0,gid=0,pid=0 source not allowed
	// unknown the client's source is not known
}
