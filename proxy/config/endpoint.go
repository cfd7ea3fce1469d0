package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/penstock/penstock/proxy/sockopt"
)

// EndpointKeys are the values of an endpoint's keys, in words of a file. Empty texts and zeros but that of the weight
// are the defaults.
type EndpointKeys struct {
	Address     string
	Name        string
	Zone        string
	Weight      int
	Backup      bool
	Connections int64
}

// NewEndpoint returns an endpoint of the values of its keys, with the defaults of a file. Its name is its
// address if it is empty. The error is one line, and says what to write instead.
func NewEndpoint(k *EndpointKeys) (Endpoint, error) {
	var e Endpoint
	v, o := reflect.ValueOf(&e).Elem(), root().byKey["upstreams"].obj.byKey["endpoints"].obj
	o.fill(v)
	var errs []error
	for key, text := range map[string]string{
		"address": k.Address, "name": k.Name, "zone": k.Zone, "weight": strconv.Itoa(k.Weight),
		"backup": strconv.FormatBool(k.Backup), "connections": strconv.FormatInt(k.Connections, 10),
	} {
		f := o.byKey[key]
		if text == "" && !f.required {
			continue
		}
		at := v.Field(f.index)
		c := f.form.set(nil, f, at, text)
		if c == nil {
			c = f.within(at)
		}
		if c != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %s", key, c.message, c.fix))
		}
	}
	if e.Name == "" {
		e.Name = e.Address.String()
	}
	return e, errors.Join(errs...)
}

// Admit returns why an endpoint cannot be one of an upstream beside those of the configuration; nil: it
// can. It checks what a file is checked for. The error is one line, and says what to write instead.
func (c *Config) Admit(upstream string, e *Endpoint) error {
	l := newLoader(nil)
	k := checker{decoder: &l.decoder}
	whole := *c
	whole.Upstreams = make([]*Upstream, len(c.Upstreams))
	for i, u := range c.Upstreams {
		if whole.Upstreams[i] = u; u.Name != upstream {
			continue
		}
		with := *u
		with.Endpoints = append(u.Endpoints[:len(u.Endpoints):len(u.Endpoints)], *e)
		whole.Upstreams[i] = &with
		k.endpoint(&with, e)
		for j := range u.Endpoints {
			if destination(u.Endpoints[j].Address) == destination(e.Address) {
				k.complainAt(place{}, "write another address, or change the weight of that one", "%s is the address of the endpoint %s", e.Address, u.Endpoints[j].Name)
			}
		}
	}
	k.loops(&whole)
	if len(l.problems) == 0 {
		return nil
	}
	p := &l.problems[0]
	if p.Fix == "" {
		return errors.New(p.Message)
	}
	return fmt.Errorf("%s: %s", p.Message, p.Fix)
}

// SameDestination reports whether two addresses are those of one destination, but for names.
func SameDestination(a, b sockopt.Address) bool { return destination(a) == destination(b) }
