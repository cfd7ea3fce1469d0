// Package match finds the first of a listener's routes that fits a client: by the host
// that its TLS hello names, the protocols that it speaks, where it comes from, and
// which port it has come to.
//
// A [Table] is made once and never changed; it is safe for concurrent use, takes no
// lock, and allocates nothing.
package match

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/internal/source"
)

// A Route selects clients. An empty field matches every client; of another field, one element
// has to match. All fields have to.
type Route struct {
	// SNI are names of hosts: "shop.example.com", or "*.example.com" for all names
	// that end so, however many labels come before, but not for example.com itself
	// (as with Envoy's server_names and nginx's map ... hostnames); "*" is for every
	// client that names a host. Case does not matter.
	SNI []string

	// ALPN are protocols, one of which the client must have offered.
	ALPN []string

	// Source are rules, one of which is for where the client comes from.
	Source []source.Rule

	// Port is that which the client has come to; 0: any.
	Port uint16
}

// Hello reports whether matching the route needs a client's hello.
func (r *Route) Hello() bool { return len(r.SNI) > 0 || len(r.ALPN) > 0 }

// A Client is the known properties of one. An unknown property is left empty, and matches
// empty fields alone.
type Client struct {
	ServerName string   // in lower case, without a dot at its end
	ALPN       []string // as offered
	Source     source.Source
	Port       uint16 // that it has come to
}

// A Table is the routes of a listener.
type Table struct {
	routes []route
	hello  bool
	exact  map[string][]int32 // by name: routes, in order
	suffix map[string][]int32 // by the name after "*.": the same
	named  []int32            // for every name
	rest   []int32            // for those without one too
}

// A route is a Route and the set that its Source makes.
type route struct {
	Route
	from *source.Set
}

// New makes the table of routes, the first of which that fits counts. The error says
// which one has a name that is none.
func New(routes []Route) (*Table, error) {
	t := &Table{
		exact:  map[string][]int32{},
		suffix: map[string][]int32{},
	}
	for i, r := range routes {
		t.routes = append(t.routes, route{r, source.NewSet(r.Source)})
		t.hello = t.hello || r.Hello()
		if len(r.SNI) == 0 {
			t.rest = append(t.rest, int32(i))
		}
		for _, pattern := range r.SNI {
			if err := t.add(int32(i), pattern); err != nil {
				return nil, fmt.Errorf("route %d: %w", i+1, err)
			}
		}
	}
	return t, nil
}

// add notes that route i is for a pattern.
func (t *Table) add(i int32, pattern string) error {
	name, err := Pattern(pattern)
	if err != nil {
		return err
	}
	switch parent, wild := strings.CutPrefix(name, "*."); {
	case name == "*":
		t.named = note(t.named, i)
	case wild:
		t.suffix[parent] = note(t.suffix[parent], i)
	default:
		t.exact[name] = note(t.exact[name], i)
	}
	return nil
}

// note appends a route, unless it is the last one.
func note(list []int32, i int32) []int32 {
	if n := len(list); n > 0 && list[n-1] == i {
		return list
	}
	return append(list, i)
}

// Len is how many routes there are.
func (t *Table) Len() int { return len(t.routes) }

// Hello reports whether a client's hello must be known to find its route.
func (t *Table) Hello() bool { return t.hello }

// Find returns the index of the first route that fits c, or -1. It costs a look into a
// map for the name and each domain above it, and a look at each route that has one of
// these names, or none, before the one that fits.
func (t *Table) Find(c *Client) int {
	best := int32(len(t.routes))
	if name := c.ServerName; name != "" {
		best = t.first(t.exact[name], best, c)
		for at := strings.IndexByte(name, '.'); at > 0 && len(t.suffix) > 0; { // a name that begins with a dot is none
			name = name[at+1:]
			best = t.first(t.suffix[name], best, c)
			at = strings.IndexByte(name, '.')
		}
		best = t.first(t.named, best, c)
	}
	best = t.first(t.rest, best, c)
	if int(best) == len(t.routes) {
		return -1
	}
	return int(best)
}

// first returns the first route of list that fits c but for the name, or best if there
// is none before that.
func (t *Table) first(list []int32, best int32, c *Client) int32 {
	for _, i := range list {
		if i >= best || t.routes[i].fits(c) {
			return min(i, best)
		}
	}
	return best
}

// fits looks at all but the name.
func (r *route) fits(c *Client) bool {
	if r.Port != 0 && r.Port != c.Port {
		return false
	}
	return (len(r.ALPN) == 0 || speaks(r.ALPN, c.ALPN)) &&
		(len(r.Source) == 0 || r.from.Contains(c.Source))
}

func speaks(wanted, offered []string) bool {
	for _, w := range wanted {
		if slices.Contains(offered, w) {
			return true
		}
	}
	return false
}
