// Package match finds the first of a listener's routes that fits a client: by the host
// that its TLS hello names, the protocols that it speaks, its first bytes, the TLVs of its
// PROXY header, where it comes from, and which port it has come to.
//
// A [Table] is made once and never changed; it is safe for concurrent use, takes no
// lock, and allocates nothing.
package match

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
)

// A Route selects clients. A client must match every field. An empty field matches every client; a list matches if
// one of its elements does.
type Route struct {
	// SNI are host names: "shop.example.com", or "*.example.com" for all names with this end, however many labels
	// come before it, but not for example.com itself (like Envoy's server_names and nginx's map ... hostnames). "*"
	// matches every client that names a host. Case does not matter.
	SNI []string

	// ALPN are protocols. The client must have offered one of them.
	ALPN []string

	// Users and Databases are for listeners that answer the PostgreSQL negotiation of their clients: the client must
	// log in as one of the users, and to one of the databases. Unlike User and Database they need none of the client's
	// first bytes.
	Users, Databases []string

	// Source are rules about the client's address or user. One of them must match.
	Source []source.Rule

	// Port is the port that the client has connected to, or 0 for any port.
	Port uint16

	// TLVs are values of a PROXY header. The client's header must have one of them.
	TLVs []TLV

	// Protocols are the protocols that the client may speak. 0 matches every client.
	Protocols firstbytes.Set

	// Host and Path are for requests of HTTP/1. Host are host names as in SNI. A path has the form that
	// [firstbytes.CanonicalPath] returns, or ends in "/*" and matches all paths with this beginning.
	Host, Path []string

	// User and Database are names in a PostgreSQL StartupMessage.
	User, Database []string

	// Bytes are patterns in the client's first bytes.
	Bytes []firstbytes.Pattern
}

// FirstBytes reports whether the route needs first bytes of a client other than its TLS hello.
func (r *Route) FirstBytes() bool {
	return r.Protocols != 0 || len(r.Host)+len(r.Path)+len(r.User)+len(r.Database)+len(r.Bytes) > 0
}

// Hello reports whether the route needs the client's TLS hello.
func (r *Route) Hello() bool { return len(r.SNI) > 0 || len(r.ALPN) > 0 }

// A Client is what is known about a client. An unknown property is left empty, and only empty fields match it.
type Client struct {
	ServerName string   // in lower case, without a dot at its end
	ALPN       []string // as offered
	// User and Database are of a PostgreSQL session, for [Table.FindAfter].
	User, Database firstbytes.Property
	Source         source.Source
	Port           uint16 // the port that it has connected to
	TLVs           []byte // of its PROXY header, see [proxyproto.Info.TLVs]
	// First is what is known about its first bytes, for [Table.Decide].
	First *firstbytes.Facts
}

// A Table is the routes of a listener.
type Table struct {
	routes  []route
	hello   bool
	login   bool // a route has Users or Databases
	sni     names
	rest    []int32 // without SNI
	host    names
	neither []int32 // without SNI and without Host

	recogniser *firstbytes.Recogniser // nil: no route depends on first bytes
	resorts    firstbytes.Set         // kinds of unreadable first bytes for which there are routes
}

// A route is a Route and the set made from its Source.
type route struct {
	Route
	from     *source.Set
	patterns []int // of the recogniser
}

// New makes the table of routes. The first route that fits a client counts. The error says which route has an invalid
// name.
func New(routes []Route) (*Table, error) {
	t := &Table{sni: newNames(), host: newNames()}
	for i, r := range routes {
		t.routes = append(t.routes, route{Route: r, from: source.NewSet(r.Source)})
		t.hello = t.hello || r.Hello()
		t.login = t.login || r.login()
		if len(r.SNI) == 0 {
			t.rest = append(t.rest, int32(i))
		}
		if len(r.SNI)+len(r.Host) == 0 {
			t.neither = append(t.neither, int32(i))
		}
		for _, pattern := range r.SNI {
			if err := t.sni.add(int32(i), pattern); err != nil {
				return nil, fmt.Errorf("route %d: %w", i+1, err)
			}
		}
		for _, pattern := range r.Host {
			if err := t.host.add(int32(i), pattern); err != nil {
				return nil, fmt.Errorf("route %d: %w", i+1, err)
			}
		}
	}
	return t, t.recognise()
}

// Len returns the number of routes.
func (t *Table) Len() int { return len(t.routes) }

// Hello reports whether the search for a route needs the client's TLS hello.
func (t *Table) Hello() bool { return t.hello }

// None is the result of a search if no route fits.
const None = -1

// Find returns the index of the first route that fits c, or None. It is for clients that have sent a TLS hello, or
// send none, if no route depends on other first bytes or on a login; otherwise use [Table.Decide] or
// [Table.FindAfter]. It looks up the name and each domain above it in a map, and looks at each route with one of these
// names, or without a name, up to the route that fits.
func (t *Table) Find(c *Client) int {
	by := look{t, c, false}
	best := t.sni.first(c.ServerName, int32(len(t.routes)), &by)
	best = by.first(t.rest, best)
	if int(best) == len(t.routes) {
		return None
	}
	return int(best)
}

// fits reports whether the route fits, without a look at the name and the login.
func (r *route) fits(c *Client) bool {
	return (len(r.ALPN) == 0 || speaks(r.ALPN, c.ALPN)) && r.fitsFrom(c)
}

// fitsFrom compares what is known before the client has sent a byte.
func (r *route) fitsFrom(c *Client) bool {
	return (r.Port == 0 || r.Port == c.Port) &&
		(len(r.Source) == 0 || r.from.Contains(c.Source)) &&
		(len(r.TLVs) == 0 || hasOne(r.TLVs, c.TLVs))
}

func speaks(wanted, offered []string) bool {
	for _, w := range wanted {
		if slices.Contains(offered, w) {
			return true
		}
	}
	return false
}

// names are routes by host name. Each list is in the order of the routes.
type names struct {
	exact  map[string][]int32 // by name
	suffix map[string][]int32 // by the name after "*."
	every  []int32            // with the pattern "*"
	all    []int32            // with any pattern
}

func newNames() names {
	return names{exact: map[string][]int32{}, suffix: map[string][]int32{}}
}

// add notes that route i is for a pattern.
func (x *names) add(i int32, pattern string) error {
	name, err := Pattern(pattern)
	if err != nil {
		return err
	}
	x.all = note(x.all, i)
	switch parent, wild := strings.CutPrefix(name, "*."); {
	case name == "*":
		x.every = note(x.every, i)
	case wild:
		x.suffix[parent] = note(x.suffix[parent], i)
	default:
		x.exact[name] = note(x.exact[name], i)
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

// first returns the first route for a name that the look takes, or best if no such route comes before best.
func (x *names) first(name string, best int32, by *look) int32 {
	if name == "" {
		return best
	}
	best = by.first(x.exact[name], best)
	for at := strings.IndexByte(name, '.'); at > 0 && len(x.suffix) > 0; { // a name cannot begin with a dot
		name = name[at+1:]
		best = by.first(x.suffix[name], best)
		at = strings.IndexByte(name, '.')
	}
	return by.first(x.every, best)
}

// A look is one search for the route of a client.
type look struct {
	table *Table
	c     *Client
	may   bool // takes routes that may fit, see [Table.Decide]
}

// takes judges a route by everything but the name.
func (l *look) takes(r *route) bool {
	if l.may {
		return r.judge(l.c, l.table.recogniser) != firstbytes.No
	}
	return r.fits(l.c)
}

// first returns the first route of list that the look takes, or best if no such route comes before best.
func (l *look) first(list []int32, best int32) int32 {
	for _, i := range list {
		if i >= best || l.takes(&l.table.routes[i]) {
			return min(i, best)
		}
	}
	return best
}

// Pattern checks an element of [Route.SNI], and returns the form in which it is compared: in lower case, without a
// dot at its end.
func Pattern(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	name := strings.TrimSuffix(strings.ToLower(s), ".")
	host := strings.TrimPrefix(name, "*.")
	if strings.Contains(host, "*") {
		return "", fmt.Errorf("%q: a wildcard must be the whole first label; write *.example.com", s)
	}
	if len(host) > 253 {
		return "", fmt.Errorf("%q: a name has at most 253 characters", s)
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return "", fmt.Errorf("%q is not a host name; write shop.example.com, or *.example.com", s)
		}
	}
	for _, c := range host {
		if !(c == '-' || c == '.' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z') {
			return "", fmt.Errorf("%q: a host name cannot have %q; write the name in Punycode (xn--)", s, c)
		}
	}
	return name, nil
}

// PathPattern checks an element of [Route.Path], and returns the form in which it is compared.
func PathPattern(s string) (string, error) {
	exact, below := s, ""
	if parent, ok := strings.CutSuffix(s, "/*"); ok {
		exact, below = parent+"/", "*"
	}
	path, ok := firstbytes.CanonicalPath(exact)
	if !ok || strings.Contains(exact, "*") {
		return "", fmt.Errorf("%q is not a path; write /status, or /api/* for all paths below /api", s)
	}
	return path + below, nil
}

// Login reports whether a route has Users or Databases.
func (t *Table) Login() bool { return t.login }

func (r *Route) login() bool { return len(r.Users)+len(r.Databases) > 0 }

// FindAfter returns the index of the first route behind the route after that fits c, or None. It looks at each of these
// routes, and is for the same clients as [Table.Find], in tables with routes that have Users or Databases. It fails
// with [ErrUndecided] if the first route that may fit depends on a user or a database in doubt: no client evades a
// route by hiding them.
func (t *Table) FindAfter(c *Client, after int) (int, error) {
	for i := after + 1; i < len(t.routes); i++ {
		r := &t.routes[i]
		if !r.named(c) || !r.fits(c) {
			continue
		}
		switch saidName(r.Users, &c.User).And(saidName(r.Databases, &c.Database)) {
		case firstbytes.No:
		case firstbytes.Yes:
			return i, nil
		default:
			return None, fmt.Errorf("%w: TLS hides its user or database, or the startup message is ambiguous", ErrUndecided)
		}
	}
	return None, nil
}

// Possible returns the index of the first route behind the route after that may fit a client, or None, if only the
// client's source, port and TLVs are known. certain reports that the route depends on nothing else. The table may be
// nil, and has no routes then.
func (t *Table) Possible(c *Client, after int) (i int, certain bool) {
	for i := after + 1; t != nil && i < len(t.routes); i++ {
		if r := &t.routes[i]; r.fitsFrom(c) {
			return i, !r.Hello() && !r.FirstBytes() && !r.login()
		}
	}
	return None, true
}

// named reports whether the name fits.
func (r *route) named(c *Client) bool { return len(r.SNI) == 0 || oneName(r.SNI, c.ServerName) }

// A TLV is a type and a value of a PROXY header.
type TLV struct {
	Type  proxyproto.Type
	Value []byte
	Any   bool // the value does not matter
}

// hasOne reports whether raw, the TLVs of a header, has one of the wanted TLVs.
func hasOne(wanted []TLV, raw []byte) bool {
	for t, value := range proxyproto.All(raw) {
		for i := range wanted {
			if w := &wanted[i]; w.Type == t && (w.Any || bytes.Equal(w.Value, value)) {
				return true
			}
		}
	}
	return false
}
