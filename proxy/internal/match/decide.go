package match

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
)

// ErrUndecided means that a client's first bytes do not show which route it takes.
var ErrUndecided = errors.New("the client's first bytes do not determine its route")

// recognise makes the recogniser of the bytes that the routes depend on.
func (t *Table) recognise() error {
	var wants firstbytes.Wants
	needed := false
	for i := range t.routes {
		r := &t.routes[i]
		if err := r.canonical(); err != nil {
			return fmt.Errorf("route %d: %w", i+1, err)
		}
		if r.Hello() {
			wants.Protocols |= firstbytes.SetOf(firstbytes.TLS)
		}
		needed = needed || r.FirstBytes() || r.Hello()
		wants.Protocols |= r.Protocols
		if len(r.Host)+len(r.Path) > 0 {
			wants.Protocols |= firstbytes.SetOf(firstbytes.HTTP1)
			wants.Host = wants.Host || len(r.Host) > 0
		}
		if len(r.User)+len(r.Database) > 0 {
			wants.Protocols |= firstbytes.SetOf(firstbytes.Postgres)
			wants.Startup = true
		}
		for j := range r.Bytes {
			p := &r.Bytes[j]
			at := slices.IndexFunc(wants.Patterns, func(q firstbytes.Pattern) bool { return q.Equal(p) })
			if at < 0 {
				at = len(wants.Patterns)
				wants.Patterns = append(wants.Patterns, *p)
			}
			r.patterns = append(r.patterns, at)
		}
	}
	if len(wants.Patterns) > firstbytes.MaxPatterns {
		return fmt.Errorf("%d patterns of bytes, more than %d", len(wants.Patterns), firstbytes.MaxPatterns)
	}
	if needed {
		t.recogniser = firstbytes.New(wants)
	}
	t.resorts = wants.Protocols & firstbytes.SetOf(firstbytes.Silence, firstbytes.MalformedTLS)
	return nil
}

// canonical replaces names and paths by the form in which they are compared. It clones the slices first.
func (r *route) canonical() (err error) {
	r.SNI, r.Host, r.Path = slices.Clone(r.SNI), slices.Clone(r.Host), slices.Clone(r.Path)
	for _, names := range [][]string{r.SNI, r.Host} {
		for i := range names {
			if names[i], err = Pattern(names[i]); err != nil {
				return err
			}
		}
	}
	for i := range r.Path {
		if r.Path[i], err = PathPattern(r.Path[i]); err != nil {
			return err
		}
	}
	return nil
}

// Recogniser returns the recogniser of the bytes that the routes depend on, or nil if no route depends on bytes.
func (t *Table) Recogniser() *firstbytes.Recogniser { return t.recogniser }

// Decide returns the index of the first route behind the route after that fits c, or None. It searches all routes if
// after is None. It fails with [ErrUndecided] if the first route that may fit depends on something that is not known
// about c: no client evades a route by leaving its first bytes in doubt.
//
// If c's bytes cannot be read ([firstbytes.Facts.Unread]), Decide skips routes by bytes only if a later route is for
// such clients: a client cannot evade a route by being late. The caller sets [firstbytes.Facts.Silent] if the
// operator allows silent clients. If no route names silence, such a client takes the first route that depends on no
// byte.
//
// Routes by SNI or Host are found by the name, once it is known. For a client that cannot be read, and for a search
// that begins behind a route, Decide looks at each route.
func (t *Table) Decide(c *Client, after int) (int, error) {
	if _, unread := c.First.Unread(); unread || after != None {
		return t.decideInOrder(c, after)
	}
	best := t.firstThatMay(c)
	switch {
	case int(best) == len(t.routes):
		return None, nil
	case t.routes[best].judge(c, t.recogniser) == firstbytes.Yes:
		return int(best), nil
	}
	return None, undecided(c)
}

// undecided returns the error for a client, with the reason if it is known.
func undecided(c *Client) error {
	switch {
	case c.First.HelloErr != nil:
		return fmt.Errorf("%w: %w", ErrUndecided, c.First.HelloErr)
	case c.First.Why != "":
		return fmt.Errorf("%w: %s", ErrUndecided, c.First.Why)
	}
	return ErrUndecided
}

// firstThatMay returns the index of the first route that may fit c, or the number of routes.
func (t *Table) firstThatMay(c *Client) int32 {
	by := look{t, c, true}
	best := by.first(t.neither, int32(len(t.routes)))
	switch f := c.First; f.Is(firstbytes.TLS) {
	case firstbytes.No:
	case firstbytes.Yes:
		best = t.sni.first(f.Hello.ServerName, best, &by)
	default:
		best = by.first(t.sni.all, best)
	}
	switch f := c.First; f.Host.Verdict {
	case firstbytes.No:
	case firstbytes.Yes:
		best = t.host.first(f.Host.Value, best, &by)
	default:
		best = by.first(t.host.all, best)
	}
	return best
}

// decideInOrder is Decide without the look-up by name: it looks at each route.
func (t *Table) decideInOrder(c *Client, after int) (int, error) {
	by, unread := c.First.Unread()
	passed, open := false, by == firstbytes.Silence && unread && !t.resorts.Has(by)
	for i := after + 1; i < len(t.routes); i++ {
		r := &t.routes[i]
		switch v := r.judge(c, t.recogniser); {
		case v == firstbytes.No:
		case unread && (v == firstbytes.Doubt || v == firstbytes.Open && by == firstbytes.Silence):
			passed = !open
		case v != firstbytes.Yes:
			return None, undecided(c)
		case passed && !r.Protocols.Has(by):
			return None, undecided(c)
		default:
			return i, nil
		}
	}
	if passed {
		return None, undecided(c)
	}
	return None, nil
}

// judge says whether the route fits.
func (r *route) judge(c *Client, by *firstbytes.Recogniser) firstbytes.Verdict {
	if !r.fitsFrom(c) {
		return firstbytes.No
	}
	f := c.First
	v := firstbytes.Yes
	if r.Protocols != 0 {
		v = spoken(r.Protocols, f)
	}
	if r.Hello() {
		hello := f.Is(firstbytes.TLS)
		if hello == firstbytes.Yes {
			hello = firstbytes.If((len(r.SNI) == 0 || oneName(r.SNI, f.Hello.ServerName)) && (len(r.ALPN) == 0 || speaks(r.ALPN, f.Hello.ALPN)))
		}
		v = v.And(hello)
	}
	v = v.And(said(r.Host, &f.Host, oneName))
	v = v.And(said(r.Path, &f.Path, onePath))
	v = v.And(saidName(r.User, &f.User))
	v = v.And(saidName(r.Database, &f.Database))
	if len(r.patterns) > 0 {
		one := firstbytes.No
		for _, p := range r.patterns {
			one = one.Or(f.Matches(by, p))
		}
		v = v.And(one)
	}
	return v
}

// spoken says whether the client speaks one of some protocols.
func spoken(wanted firstbytes.Set, f *firstbytes.Facts) firstbytes.Verdict {
	v := firstbytes.No
	for p := range firstbytes.Protocols {
		if wanted.Has(p) {
			v = v.Or(f.Is(p))
		}
	}
	return v
}

// said says whether a property is one of some values, if any are wanted.
func said(wanted []string, has *firstbytes.Property, one func(wanted []string, value string) bool) firstbytes.Verdict {
	if len(wanted) == 0 {
		return firstbytes.Yes
	}
	if has.Verdict != firstbytes.Yes {
		return has.Verdict
	}
	return firstbytes.If(one(wanted, has.Value))
}

// saidName is said for a user or a database of PostgreSQL. A name that differs from one of the wanted names only by case
// is in doubt: servers such as CockroachDB take it for the same.
func saidName(wanted []string, has *firstbytes.Property) firstbytes.Verdict {
	v := said(wanted, has, slices.Contains)
	if v == firstbytes.No && slices.ContainsFunc(wanted, func(w string) bool {
		return strings.EqualFold(dotted.Replace(w), dotted.Replace(has.Value))
	}) {
		return firstbytes.Doubt
	}
	return v
}

// dotted replaces the Turkish letters that CockroachDB takes for an i.
var dotted = strings.NewReplacer("\u0130", "i", "\u0131", "i")

// oneName reports whether one of the patterns is the name, or a domain above it.
func oneName(patterns []string, name string) bool {
	for _, p := range patterns {
		switch parent, wild := strings.CutPrefix(p, "*"); {
		case !wild && p == name, wild && parent == "" && name != "":
			return true
		case wild && parent != "" && len(name) > len(parent) && strings.HasSuffix(name, parent) && name[0] != '.' && !strings.Contains(name, ".."):
			return true
		}
	}
	return false
}

// onePath reports whether one of the patterns is the path, or a directory above it.
func onePath(patterns []string, path string) bool {
	for _, p := range patterns {
		if parent, below := strings.CutSuffix(p, "*"); p == path || below && strings.HasSuffix(parent, "/") && strings.HasPrefix(path, parent) {
			return true
		}
	}
	return false
}
