package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/internal/file"
)

// An EndpointEdit is a change of an endpoint in a file. One of Add, Remove, Weight and State is set.
type EndpointEdit struct {
	Upstream string
	Endpoint string    // its name, or its address; not for Add
	Add      *Endpoint // an endpoint that NewEndpoint has made
	Remove   bool
	Weight   *int
	State    string
}

// An Edited is a file of a configuration, before and after an edit.
type Edited struct {
	Path          string // of the file that has the endpoint's line
	Before, After []byte // equal: the file says so already
}

// ErrNotPlain is wrapped by the error of an edit of a line that another one may stand for, or that stands
// for others: an alias, an anchor, a variable.
var ErrNotPlain = errors.New("not written in a plain way")

// EditEndpoint edits the file that has an endpoint's line: the file at path, or one that it includes. Nothing
// is written. Comments and format stay. The edited configuration was checked as by [Load], and differs from the
// one before in this alone. The error is one line.
func EditEndpoint(path string, env Env, e *EndpointEdit) (*Edited, error) {
	before, problems := Load(path, env)
	if len(problems) > 0 {
		return nil, problemError(problems)
	}
	wanted, u, i, err := e.wanted(before)
	if err != nil {
		return nil, err
	}
	text, err := file.Read(u.Pos.File, maxFile)
	if err != nil {
		return nil, err
	}
	done := &Edited{Path: u.Pos.File, Before: text, After: text}
	if len(Diff(before, wanted)) == 0 {
		return done, nil
	}
	ed := editor{source: newSource(u.Pos.File, text)}
	after, err := ed.edit(u, i, e)
	if err != nil {
		return nil, fmt.Errorf("%v: %w: edit it by hand", positionOf(u, err), err)
	}
	done.After = []byte(after)
	next, problems := loadWith(path, env, done)
	if len(problems) > 0 {
		return nil, problemError(problems)
	}
	if len(Diff(wanted, next)) > 0 {
		return nil, fmt.Errorf("%v: %w: the edit would change more than this: edit it by hand", u.Pos, ErrNotPlain)
	}
	return done, nil
}

// positionOf returns where the node of an error is, or else the upstream.
func positionOf(u *Upstream, err error) Pos {
	at := u.Pos
	if e, ok := errors.AsType[*notPlain](err); ok {
		at.Line, at.Column = e.at.Line, e.at.Column
	}
	return at
}

func problemError(problems []Problem) error {
	p := &problems[0]
	return fmt.Errorf("%v: %s", p.Pos, p.Message)
}

// loadWith is Load, with one file as it was edited.
func loadWith(path string, env Env, e *Edited) (*Config, []Problem) {
	l := newLoader(env)
	read, edited := l.read, absolute(e.Path)
	l.read = func(path string, most int) ([]byte, error) {
		if absolute(path) == edited {
			return e.After, nil
		}
		return read(path, most)
	}
	l.file(path, place{})
	return l.finish()
}

// wanted returns the configuration as the edit makes it, the upstream before, and which of its endpoints
// the edit is about.
func (e *EndpointEdit) wanted(c *Config) (next *Config, u *Upstream, index int, err error) {
	at := slices.IndexFunc(c.Upstreams, func(u *Upstream) bool { return u.Name == e.Upstream })
	if at < 0 {
		return nil, nil, 0, fmt.Errorf("the file has no upstream %s: nothing was saved", e.Upstream)
	}
	u = c.Upstreams[at]
	if u.Discover != nil {
		return nil, nil, 0, fmt.Errorf("the endpoints of %s are discovered: change them at their source", e.Upstream)
	}
	copied, with := *c, *u
	with.Endpoints = slices.Clone(u.Endpoints)
	copied.Upstreams = slices.Clone(c.Upstreams)
	copied.Upstreams[at] = &with
	name := e.Name()
	index = slices.IndexFunc(u.Endpoints, func(o Endpoint) bool { return o.Name == name })
	if index < 0 {
		index = slices.IndexFunc(u.Endpoints, func(o Endpoint) bool { return o.Address.String() == name })
	}
	switch {
	case e.Add != nil && index < 0:
		with.Endpoints = append(with.Endpoints, *e.Add)
	case e.Remove && index >= 0 && len(u.Endpoints) == 1:
		return nil, nil, 0, fmt.Errorf("%s is the only endpoint of %s in the file, which needs one: add another one first", name, e.Upstream)
	case e.Remove && index >= 0:
		with.Endpoints = slices.Delete(with.Endpoints, index, index+1)
	case e.Add != nil, e.Remove: // the file says so already
	case index < 0:
		return nil, nil, 0, fmt.Errorf("the file has no endpoint %s of %s: it has %s", e.Endpoint, e.Upstream, endpointNames(u.Endpoints))
	case e.Weight != nil:
		with.Endpoints[index].Weight = *e.Weight
	default:
		with.Endpoints[index].State = e.State
	}
	return &copied, u, index, nil
}

// endpointNames lists the names of endpoints, some of them.
func endpointNames(list []Endpoint) string {
	const most = 10
	names := make([]string, min(len(list), most))
	for i := range names {
		names[i] = list[i].Name
	}
	if len(list) > most {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}

// Name returns the name of the endpoint, or its address, as it is given.
func (e *EndpointEdit) Name() string {
	if e.Add != nil {
		return e.Add.Name
	}
	return e.Endpoint
}
