package reload

import (
	"fmt"
	"strings"
)

// A shape is how large a configuration is.
type shape struct {
	Admin     string // unix socket
	Port      int    // the listeners' port
	Listeners int    // each with an upstream of its own
	Endpoints int    // of all upstreams
	Interval  string // of health checks, "" for none
}

// endpoint is the address of the n-th endpoint.
func endpoint(n, port int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+n>>14, n>>7&127, 1+n&127, port)
}

// address is a listener's address: an address of its own, from which no client connects.
func (s *shape) address(listener int) string {
	return fmt.Sprintf("127.200.%d.%d:%d", listener>>7, 1+listener&127, s.Port)
}

// text is a configuration. The n-th endpoint is at port(n); rate is something of each
// listener that is changed at will.
func (s *shape) text(port func(n int) int, rate int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "admin: {bind: \"unix:%s\"}\nlisteners:\n", s.Admin)
	for i := range s.Listeners {
		fmt.Fprintf(&b, "  - {name: l%d, bind: %q, upstream: u%d, allow: [\"127.0.0.0/8\"], limits: {per_source_per_second: %d}}\n", i, s.address(i), i, rate)
	}
	b.WriteString("upstreams:\n")
	check := "off"
	if s.Interval != "" {
		check = "{interval: " + s.Interval + "}"
	}
	for i, n := 0, 0; i < s.Listeners; i++ {
		fmt.Fprintf(&b, "  - {name: u%d, on_removed: keep, health_check: %s, endpoints: [", i, check)
		for ; n < (i+1)*s.Endpoints/s.Listeners; n++ {
			fmt.Fprintf(&b, "%q, ", endpoint(n, port(n)))
		}
		b.WriteString("]}\n")
	}
	return b.String()
}
