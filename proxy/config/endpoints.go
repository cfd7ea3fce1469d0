package config

import (
	"errors"
	"net/netip"
	"reflect"

	"github.com/penstock/penstock/proxy/sockopt"
	"go.yaml.in/yaml/v4"
)

// Limits of an endpoints file: its values, and the problems that are reported.
const (
	maxListed         = 200_000
	maxListedProblems = 20
)

// ParseEndpoints reads the text of a file with at most most endpoints, in the form of an upstream's endpoints. name
// is the name of the file in errors. An error joins a [Problem] for each error of the list.
func ParseEndpoints(name string, text []byte, most int) ([]Endpoint, error) {
	l := newLoader(nil)
	l.literal, l.names, l.src = true, []string{name}, newSource(name, text)
	l.src.most = maxListed
	var list []Endpoint
	n, problem := l.src.parse()
	whole := place{src: l.src, line: 1, col: 1, width: 1}
	switch {
	case problem != nil:
		l.problems = append(l.problems, *problem)
	case n == nil:
		l.complainAt(whole, "write [] for no endpoints", "the file is empty")
	case n.Kind != yaml.SequenceNode:
		l.complainAt(l.src.at(n), `write a list of endpoints, such as ["10.0.0.11:5432", {address: "10.0.0.12:5432", weight: 2}]`, "a file of endpoints is a list, not %s", kindOf(n))
	case len(n.Content) > most:
		l.complainAt(l.src.at(n.Content[most]), "write fewer endpoints", "there are more than %d endpoints", most)
	default:
		l.field(described(reflect.TypeFor[Upstream]()).byKey["endpoints"], reflect.ValueOf(&list).Elem(), n)
		(&checker{decoder: &l.decoder}).listed(list)
	}
	if len(l.problems) == 0 {
		return list, nil
	}
	var all []error
	for i, p := range l.found() {
		if i == maxListedProblems {
			all = append(all, whole.problem("", "and more"))
			break
		}
		all = append(all, p)
	}
	return nil, errors.Join(all...)
}

// listed checks the endpoints of a file. They have no state, and each is at one host.
func (k *checker) listed(list []Endpoint) {
	names := newNames(k.decoder, "endpoint")
	for i := range list {
		e := &list[i]
		at := k.at(&e.Address, e)
		identity := e.Name
		if identity == "" && e.Address.Network != "" {
			identity = e.Address.String()
		}
		names.define(&identity, k.at(&e.Name, e).or(at), "leave one out, or give it another name")
		if k.given(&e.State) {
			k.complainAt(k.at(&e.State, e), "leave it out", "a file of endpoints has no state")
		}
		if addr, err := netip.ParseAddrPort(e.Address.Name); e.Address.Network == "tcp" && err == nil && sockopt.NoHost(addr.Addr()) != "" {
			k.complainAt(at, "write the address of one server", "%s", sockopt.NoHost(addr.Addr()))
		}
	}
}
