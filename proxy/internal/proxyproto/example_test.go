package proxyproto_test

import (
	"fmt"
	"net/netip"

	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
)

func ExamplePolicy_Parse() {
	policy := &proxyproto.Policy{From: source.NewSet([]source.Rule{source.Prefix(netip.MustParsePrefix("10.0.0.0/8"))})}
	if !policy.Expects(source.TCP(netip.MustParseAddrPort("10.0.0.7:1111"))) {
		return // it speaks for itself
	}
	peeked := []byte("PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\nGET / HTTP/1.1\r\n")
	var info proxyproto.Info
	n, err := policy.Parse(peeked, &info)
	fmt.Printf("%v to %v, %v, then %q\n", info.Source, info.Destination, err, peeked[n:])
	// Output: 192.0.2.1:5555 to 198.51.100.2:443, <nil>, then "GET / HTTP/1.1\r\n"
}

func ExampleAppend() {
	b := proxyproto.Append(nil, 1, &proxyproto.Connection{
		Source:      netip.MustParseAddrPort("192.0.2.1:5555"),
		Destination: netip.MustParseAddrPort("198.51.100.2:443"),
	})
	fmt.Printf("%q\n", b)
	// Output: "PROXY TCP4 192.0.2.1 198.51.100.2 5555 443\r\n"
}
