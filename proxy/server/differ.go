package server

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock/proxy/discovery"
)

// maxNamed is how many endpoints a line of the log names; the others are counted.
const maxNamed = 10

// A difference is the difference between an update's members and those that it replaces.
type difference struct{ came, went, changed nameList }

// A nameList is the names of endpoints, of which the first are kept and the others counted.
type nameList struct {
	first []string
	n     int
}

func (l *nameList) add(endpoint *discovery.Endpoint) {
	if l.n++; l.n > maxNamed {
		return
	}
	name := endpoint.Identity()
	if name != endpoint.Address {
		name += " (" + endpoint.Address + ")"
	}
	l.first = append(l.first, name)
}

func (l *nameList) String() string {
	text := strings.Join(l.first, ", ")
	if more := l.n - len(l.first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// differs returns the difference between an update that is not in use yet and the present
// members.
func (update *endpointUpdate) differs(members map[string]*member) (d difference) {
	for _, m := range update.order {
		was := members[m.spec.Identity()]
		switch {
		case was == nil || was.endpoint != m.endpoint:
			d.came.add(&m.spec)
		case was.spec != m.spec:
			d.changed.add(&m.spec)
		}
	}
	for _, m := range update.gone {
		d.went.add(&m.spec)
	}
	return d
}

// attrs returns the attributes of a line of the log, without empty ones.
func (d *difference) attrs() (attrs []any) {
	for _, part := range []struct {
		key string
		of  *nameList
	}{{"came", &d.came}, {"went", &d.went}, {"changed", &d.changed}} {
		if part.of.n > 0 {
			attrs = append(attrs, part.key, part.of.String())
		}
	}
	return attrs
}
