package reload

import (
	"fmt"
	"strings"
)

// A shape is the size of a configuration.
type shape struct {
	Admin     string // unix socket
	Port      int    // the listeners' port
	Listeners int    // number of listeners, each with its own upstream
	Endpoints int    // number of endpoints of all upstreams
	Interval  string // interval of health checks, or "" for none
}

// endpoint returns the address of the n-th endpoint.
func endpoint(n, port int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+n>>14, n>>7&127, 1+n&127, port)
}

// address returns the address of a listener. Each listener has another one, and no client connects from it.
func (s *shape) address(listener int) string {
	return fmt.Sprintf("127.200.%d.%d:%d", listener>>7, 1+listener&127, s.Port)
}

// text returns a configuration. The n-th endpoint is at port(n). rate is a number in each listener that can be
// changed at will.
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
