package balancer

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock/proxy/discovery"
)

// mostNamed is how many endpoints a line of the log names; the others are counted.
const mostNamed = 10

// A difference is in what the members of a stock differ from those that it replaces.
type difference struct{ came, went, changed nameList }

// A nameList is the names of endpoints, of which the first are kept and the others counted.
type nameList struct {
	first []string
	n     int
}

func (l *nameList) add(of *discovery.Endpoint) {
	if l.n++; l.n > mostNamed {
		return
	}
	name := of.Identity()
	if name != of.Address {
		name += " (" + of.Address + ")"
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

// differs says in what a stock that is not in use yet differs from the members that there
// are.
func (st *stock) differs(members map[string]*member) (d difference) {
	for _, m := range st.order {
		was := members[m.spec.Identity()]
		switch {
		case was == nil || was.endpoint != m.endpoint:
			d.came.add(&m.spec)
		case was.spec != m.spec:
			d.changed.add(&m.spec)
		}
	}
	for _, m := range st.gone {
		d.went.add(&m.spec)
	}
	return d
}

// attrs are what a line of the log has of it: not what is empty.
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
