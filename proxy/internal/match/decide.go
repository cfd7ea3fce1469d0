package match

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
)

// ErrUndecided is the error of a client whose first bytes do not show which route it has.
var ErrUndecided = errors.New("the client's first bytes do not decide its route")

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
		return fmt.Errorf("%d patterns of bytes, and not at most %d", len(wants.Patterns), firstbytes.MaxPatterns)
	}
	if needed {
		t.recogniser = firstbytes.New(wants)
	}
	t.resorts = wants.Protocols & firstbytes.SetOf(firstbytes.Silence, firstbytes.MalformedTLS)
	return nil
}

// canonical has names and paths as they are compared. Its slices are its own from then on.
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

// Recogniser returns the recogniser of the bytes that the routes depend on; nil if none does.
func (t *Table) Recogniser() *firstbytes.Recogniser { return t.recogniser }

// Decide returns the index of the first route after another one that fits c, or None; after None are all. It fails with [ErrUndecided] if things that are not known of c
// would decide: the first route that may fit does not fit for sure. So no client evades a route by leaving its first bytes
// in doubt. Where its bytes cannot be read ([firstbytes.Facts.Unread]) routes by bytes are passed over on the way to one that names such clients, and to no
// other: a client is not to evade them by being late. If there is none by silence, a client with [firstbytes.Facts.Silent], which the
// caller sets by the operator's leave, has the first route that depends on no byte.
//
// Routes by SNI or Host are looked up by the name, once that is known. A client that cannot be read costs a look at each route, and so does a route after another one.
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

// undecided returns the error of a client, with the reason if that is known.
func undecided(c *Client) error {
	switch {
	case c.First.HelloErr != nil:
		return fmt.Errorf("%w: %w", ErrUndecided, c.First.HelloErr)
	case c.First.Why != "":
		return fmt.Errorf("%w: %s", ErrUndecided, c.First.Why)
	}
	return ErrUndecided
}

// firstThatMay returns the first route that fits c, as far as is known, or else how many routes there are.
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

// decideInOrder is Decide by a look at each route.
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
	v = v.And(said(r.User, &f.User, slices.Contains))
	v = v.And(said(r.Database, &f.Database, slices.Contains))
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

// oneName reports whether a name is one of some, or below one.
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

// onePath reports whether a path is one of some, or below one.
func onePath(patterns []string, path string) bool {
	for _, p := range patterns {
		if parent, below := strings.CutSuffix(p, "*"); p == path || below && strings.HasSuffix(parent, "/") && strings.HasPrefix(path, parent) {
			return true
		}
	}
	return false
}
