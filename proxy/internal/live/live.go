// Package live decides about changes by hand: which of them are in force, on which line of the
// configuration each stands, and which of them a configuration ends.
package live

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/state"
)

// A Set is the changes that are in force, in the order in which they were made. It does not change. The
// zero value is empty.
type Set struct{ list []state.Change }

// NewSet returns a set of changes.
func NewSet(list []state.Change) Set { return Set{slices.Clone(list)} }

// All returns the changes. The caller does not change them.
func (s Set) All() []state.Change { return s.list }

// Find returns the change of a key; nil: there is none.
func (s Set) Find(key state.Key) *state.Change {
	for i := range s.list {
		if s.list[i].Key() == key {
			return &s.list[i]
		}
	}
	return nil
}

// With returns the set with a change, which replaces an earlier change of the same key.
func (s Set) With(c state.Change) Set {
	return Set{append(s.Without(c.Key()).list, c)}
}

// Without returns the set without the changes of keys.
func (s Set) Without(keys ...state.Key) Set {
	return s.filter(func(c *state.Change) bool { return !slices.Contains(keys, c.Key()) })
}

// WithoutEndpoint returns the set without the changes of an endpoint.
func (s Set) WithoutEndpoint(upstream, endpoint string) Set {
	return s.filter(func(c *state.Change) bool { return c.Upstream != upstream || c.Endpoint != endpoint })
}

func (s Set) filter(keep func(*state.Change) bool) (left Set) {
	for i := range s.list {
		if keep(&s.list[i]) {
			left.list = append(left.list, s.list[i])
		}
	}
	return left
}

// Of returns the changes of an upstream's endpoints; nil: there are none.
func (s Set) Of(upstream string) *Upstream {
	var u *Upstream
	for i := range s.list {
		c := &s.list[i]
		if c.Upstream != upstream || c.Endpoint == "" {
			continue
		}
		if u == nil {
			u = &Upstream{by: make(map[state.Key]*state.Change)}
		}
		u.by[state.Key{Kind: c.Kind, Endpoint: c.Endpoint}] = c
		if c.Kind == state.EndpointAdded {
			u.added = append(u.added, c)
		}
	}
	return u
}

// An Upstream is the changes of the endpoints of an upstream. A nil Upstream has none.
type Upstream struct {
	by    map[state.Key]*state.Change
	added []*state.Change
}

// Find returns the change of a kind; nil: there is none.
func (u *Upstream) Find(kind state.Kind, endpoint string) *state.Change {
	if u == nil {
		return nil
	}
	return u.by[state.Key{Kind: kind, Endpoint: endpoint}]
}

// Added returns the endpoints that were added.
func (u *Upstream) Added() []*state.Change {
	if u == nil {
		return nil
	}
	return u.added
}

// An Ended is a change that ends, and why.
type Ended struct {
	state.Change
	Why string
}

// Under returns the changes that go on under a configuration, and the changes that end, because the line on which
// they stand is another one now. A change stands on the same line after a restart as after a reload.
func (s Set) Under(cfg *config.Config) (left Set, ended []Ended) {
	if len(s.list) == 0 {
		return s, nil
	}
	u := under{cfg: cfg, upstreams: make(map[string]*config.Upstream, len(cfg.Upstreams)), refused: make(map[state.Key]string)}
	for _, up := range cfg.Upstreams {
		u.upstreams[up.Name] = up
	}
	for i := range s.list { // comes first, because other changes stand on added endpoints
		if c := &s.list[i]; c.Kind == state.EndpointAdded {
			u.refused[endpointOf(c)] = u.admits(c)
		}
	}
	left = s.filter(func(c *state.Change) bool {
		why := u.ends(c)
		if why != "" {
			ended = append(ended, Ended{*c, why})
		}
		return why == ""
	})
	return left, ended
}

func endpointOf(c *state.Change) state.Key {
	return state.Key{Upstream: c.Upstream, Endpoint: c.Endpoint}
}

// under says which changes go on under a configuration.
type under struct {
	cfg       *config.Config // with the endpoints that were added by hand and go on
	upstreams map[string]*config.Upstream
	refused   map[state.Key]string // why endpoints that were added by hand do not go on; "": they do
}

// ends returns why a change ends; "": it goes on.
func (u *under) ends(c *state.Change) string {
	switch c.Kind {
	case state.EndpointAdded:
		return u.refused[endpointOf(c)]
	case state.EndpointRemoved, state.EndpointState, state.EndpointWeight:
		return u.endpoint(c)
	case state.ListenerDrained:
		l := u.listener(c.Listener)
		if l == nil {
			return "the configuration no longer has the listener"
		}
		return differs(c.Line, BindLine(l))
	case state.Split:
		return u.split(c)
	}
	return ""
}

func differs(stands, now string) string {
	if stands == now {
		return ""
	}
	return fmt.Sprintf("the line has changed from %q to %q", stands, now)
}

const noUpstream = "the configuration no longer has the upstream"

// admits returns why an endpoint that was added cannot stay; "": it can, and is taken into account for later ones.
func (u *under) admits(c *state.Change) string {
	up := u.upstreams[c.Upstream]
	if up == nil {
		return noUpstream
	}
	e, err := config.NewEndpoint((*config.EndpointKeys)(c.Added))
	if err != nil {
		return err.Error()
	}
	for i := range up.Endpoints {
		if at := &up.Endpoints[i]; at.Name == e.Name || config.SameDestination(at.Address, e.Address) {
			return "the configuration now has the endpoint"
		}
	}
	if err := u.cfg.Admit(c.Upstream, &e); err != nil {
		return err.Error()
	}
	with := *u.cfg
	with.Upstreams = slices.Clone(with.Upstreams)
	for i, of := range with.Upstreams {
		if of.Name == c.Upstream {
			up := *of
			up.Endpoints = append(slices.Clip(up.Endpoints), e)
			with.Upstreams[i] = &up
		}
	}
	u.cfg = &with
	return ""
}

func (u *under) endpoint(c *state.Change) string {
	up := u.upstreams[c.Upstream]
	switch {
	case up == nil:
		return noUpstream
	case c.Line == "": // it stands on an endpoint that was added by hand
		if why, added := u.refused[endpointOf(c)]; added && why == "" {
			return ""
		}
		return "the endpoint is no longer one that was added by hand"
	case up.Discover == nil:
		return fileEndpoint(c, up)
	case c.Kind == state.EndpointWeight: // its line is the weight that discovery gives: package server ends it when that changes
		return ""
	}
	return differs(c.Line, DiscoverLine(up.Discover))
}

func fileEndpoint(c *state.Change, up *config.Upstream) string {
	for i := range up.Endpoints {
		e := &up.Endpoints[i]
		if e.Name != c.Endpoint {
			continue
		}
		switch c.Kind {
		case state.EndpointWeight:
			return differs(c.Line, WeightLine(e.Weight))
		case state.EndpointState:
			return differs(c.Line, StateLine(e))
		}
		return differs(c.Line, EndpointLine(e))
	}
	return "the configuration no longer has the endpoint"
}

func (u *under) listener(name string) *config.Listener {
	for _, l := range u.cfg.Listeners {
		if l.Name == name {
			return l
		}
	}
	return nil
}

func (u *under) split(c *state.Change) string {
	l := u.listener(c.Listener)
	if l == nil || c.Route < 0 || c.Route >= len(l.Routes) || len(l.Routes[c.Route].Split) == 0 {
		return "the configuration no longer has this split"
	}
	split := l.Routes[c.Route].Split
	if _, ok := ParsePercentages(split, c.Value); !ok {
		return "the split now has other upstreams"
	}
	if now := MatchLine(&l.Routes[c.Route]); c.Match != "" && c.Match != now { // another route may have taken its number
		return differs(c.Match, now)
	}
	return differs(c.Line, SplitLine(split))
}

// Restore returns the set with the changes of ended that go on under a configuration, and a list of these changes. If
// the set already has a change of the same thing, the ended change stays out.
func (s Set) Restore(ended []state.Change, cfg *config.Config) (with Set, restored []state.Change) {
	with = s
	for i := range ended {
		if c := &ended[i]; !s.overrides(c) {
			with = with.With(*c)
		}
	}
	with, _ = with.Under(cfg)
	for i := range ended {
		if key := ended[i].Key(); s.Find(key) == nil && with.Find(key) != nil {
			restored = append(restored, ended[i])
		}
	}
	slices.SortStableFunc(with.list, func(a, b state.Change) int { return a.Since.Compare(b.Since) })
	return with, restored
}

// overrides reports whether a change of the set is about the same thing as another change. The removal of an
// endpoint is about all of it.
func (s Set) overrides(c *state.Change) bool {
	return slices.ContainsFunc(s.list, func(of state.Change) bool {
		same := of.Endpoint != "" && of.Upstream == c.Upstream && of.Endpoint == c.Endpoint
		return of.Key() == c.Key() || same && (of.Kind == state.EndpointRemoved || c.Kind == state.EndpointRemoved)
	})
}

// The lines that changes stand on, as texts. A line is the part of the configuration that the change
// replaces, whichever way it is written.

// WeightLine is the line of a weight.
func WeightLine(weight int) string { return "weight: " + strconv.Itoa(weight) }

// StateLine is the line of an endpoint's state.
func StateLine(e *config.Endpoint) string { return fmt.Sprintf("%s, state: %s", e.Address, e.State) }

// EndpointLine is the whole line of an endpoint.
func EndpointLine(e *config.Endpoint) string {
	var b strings.Builder
	b.WriteString(e.Address.String())
	add := func(key string, value any, there bool) {
		if there {
			fmt.Fprintf(&b, ", %s: %v", key, value)
		}
	}
	add("name", e.Name, e.Name != e.Address.String())
	add("weight", e.Weight, e.Weight != 1)
	add("backup", e.Backup, e.Backup)
	add("zone", e.Zone, e.Zone != "")
	add("connections", e.Connections, e.Connections != 0)
	add("state", e.State, e.State != config.Ready)
	return b.String()
}

// DiscoverLine is the line of the source of discovered endpoints. The states of these endpoints stand on it, because
// a source has no line for each endpoint that would stay the same.
func DiscoverLine(d *config.Discover) string {
	if d.File != nil {
		return "discover: file " + string(d.File.Path)
	}
	return fmt.Sprintf("discover: %s %s, port %d", d.DNS.Type, d.DNS.Name, d.DNS.Port)
}

// BindLine is the line of a listener's addresses.
func BindLine(l *config.Listener) string {
	list := make([]string, len(l.Bind))
	for i, b := range l.Bind {
		list[i] = b.String()
	}
	slices.Sort(list)
	return "bind: " + strings.Join(list, ", ")
}

// Percentages is a split in one word, such as shop:95,next:5. It is the line of a split as well.
func Percentages(split []config.Share, percent []float64) string {
	parts := make([]string, len(split))
	for i, share := range split {
		parts[i] = fmt.Sprintf("%s:%v", share.Upstream, percent[i])
	}
	return strings.Join(parts, ",")
}

// MatchLine is the line of the clients of a route.
func MatchLine(r *config.Route) string { return cmp.Or(r.Match.Text(), "every client") }

// SplitLine is the line of a split.
func SplitLine(split []config.Share) string {
	percent := make([]float64, len(split))
	for i, share := range split {
		percent[i] = share.Percent
	}
	return Percentages(split, percent)
}

// ParsePercentages reads the word of Percentages, for a split among the same upstreams.
func ParsePercentages(split []config.Share, text string) ([]float64, bool) {
	parts := strings.Split(text, ",")
	if len(parts) != len(split) {
		return nil, false
	}
	percent := make([]float64, len(split))
	for i, part := range parts {
		value, ok := strings.CutPrefix(part, split[i].Upstream+":")
		p, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return nil, false
		}
		percent[i] = p
	}
	return percent, true
}
