package match

import (
	"strings"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
)

// names is routes by the names of hosts that they are for, each list in order.
type names struct {
	exact  map[string][]int32 // by name
	suffix map[string][]int32 // by the name after "*."
	every  []int32            // for every name
	all    []int32            // for any name at all
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

// first returns the first route for a name that a look takes, or best if there is none before that.
func (x *names) first(name string, best int32, by *look) int32 {
	if name == "" {
		return best
	}
	best = by.first(x.exact[name], best)
	for at := strings.IndexByte(name, '.'); at > 0 && len(x.suffix) > 0; { // a name that begins with a dot is none
		name = name[at+1:]
		best = by.first(x.suffix[name], best)
		at = strings.IndexByte(name, '.')
	}
	return by.first(x.every, best)
}

// A look is one search for a client's route.
type look struct {
	table *Table
	c     *Client
	may   bool // takes routes that may fit, see [Table.Decide]
}

// takes judges a route by all that is not looked up by name.
func (l *look) takes(r *route) bool {
	if l.may {
		return r.judge(l.c, l.table.recogniser) != firstbytes.No
	}
	return r.fits(l.c)
}

// first returns the first route of list that it takes, or best if there is none before that.
func (l *look) first(list []int32, best int32) int32 {
	for _, i := range list {
		if i >= best || l.takes(&l.table.routes[i]) {
			return min(i, best)
		}
	}
	return best
}
