package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/state"
)

// editOf returns a change as the edit of a file. An endpoint that was added by hand is not in the file yet: it is
// added there as it is in force, with the change.
func editOf(c *admin.EndpointChange, now *endpointNow) (*config.EndpointEdit, error) {
	edit := &config.EndpointEdit{Upstream: c.Upstream, Endpoint: c.Endpoint}
	switch {
	case c.What == admin.EndpointRemove:
		edit.Remove = true
		return edit, nil
	case now.added:
		e, err := now.with(c)
		edit.Add = e
		return edit, err
	case c.What == admin.EndpointAdd:
		if c.Weight == unweighed {
			c.Weight = 1
		}
		e, err := config.NewEndpoint(&config.EndpointKeys{Address: c.Endpoint, Name: c.Name, Zone: c.Zone, Weight: c.Weight, Backup: c.Backup, Connections: c.Connections})
		edit.Add = &e
		return edit, err
	case c.What == admin.EndpointWeight:
		edit.Weight = &c.Weight
	default:
		edit.State = string(c.What)
	}
	return edit, nil
}

// noEndpoint stands for an endpoint that is not there.
const noEndpoint = "none"

// An endpointNow is an endpoint as it is at a moment.
type endpointNow struct {
	*admin.Endpoint      // nil: there is none
	added           bool // by hand
	taking          int  // endpoints of the upstream that may get clients
}

// with returns an endpoint that was added by hand, with a change, as the file is to have it.
func (n *endpointNow) with(c *admin.EndpointChange) (*config.Endpoint, error) {
	keys, mode := config.EndpointKeys{Address: n.Address, Name: n.Name, Zone: n.Zone, Weight: n.Weight, Backup: n.Backup, Connections: n.Max}, stateWord(n.Endpoint)
	switch c.What {
	case admin.EndpointAdd:
		if given, err := config.NewEndpoint(&config.EndpointKeys{Address: c.Endpoint, Name: c.Name, Weight: 1}); err != nil || given.Name != n.Name || given.Address.String() != n.Address {
			return nil, fmt.Errorf("upstream %s has the endpoint %s at %s, which was added by hand: write endpoint add %[1]s %[3]s%[4]s, or remove that one first", c.Upstream, n.Name, n.Address, n.nameFlag())
		}
		if c.Weight != unweighed {
			keys.Weight = c.Weight
		}
		keys.Zone, keys.Backup, keys.Connections = cmp.Or(c.Zone, keys.Zone), c.Backup || keys.Backup, cmp.Or(c.Connections, keys.Connections)
	case admin.EndpointWeight:
		keys.Weight = c.Weight
	default:
		mode = string(c.What)
	}
	if keys.Name == n.Address {
		keys.Name = ""
	}
	e, err := config.NewEndpoint(&keys)
	e.State = mode
	return &e, err
}

func (n *endpointNow) nameFlag() string {
	if n.Name == n.Address {
		return ""
	}
	return " --name " + n.Name
}

// value returns the part of it that a change is about.
func (n *endpointNow) value(what admin.EndpointVerb) string {
	switch {
	case n.Endpoint == nil:
		return noEndpoint
	case what == admin.EndpointWeight:
		return strconv.Itoa(n.Weight)
	case what == admin.EndpointAdd:
		return fmt.Sprintf("%s, weight %d", stateWord(n.Endpoint), n.Weight)
	}
	return stateWord(n.Endpoint)
}

// endpointOf returns the endpoint of a change as it is now.
func endpointOf(ctx context.Context, client *admin.Client, c *admin.EndpointChange) (n endpointNow, err error) {
	st, err := client.Status(ctx)
	for i := range st.Upstreams {
		u := &st.Upstreams[i]
		for j := range u.Endpoints {
			e := &u.Endpoints[j]
			if u.Name != c.Upstream {
				continue
			}
			if e.State != admin.Draining && e.State != admin.Maint && e.State != admin.Removed && e.Weight > 0 {
				n.taking++
			}
			if e.Name == c.Endpoint || e.Address == c.Endpoint || c.Name != "" && e.Name == c.Name {
				n.Endpoint = e
			}
		}
	}
	n.added = n.Endpoint != nil && n.State != admin.Removed && slices.ContainsFunc(st.Live, func(l admin.LiveChange) bool {
		return l.Kind == string(state.EndpointAdded) && l.Upstream == c.Upstream && l.Endpoint == n.Name
	})
	return n, err
}

// stateWord returns the word by which an endpoint's state is set.
func stateWord(e *admin.Endpoint) string {
	switch e.State {
	case admin.Draining:
		return config.Drain
	case admin.Maint, admin.Removed:
		return string(e.State)
	}
	return config.Ready
}
