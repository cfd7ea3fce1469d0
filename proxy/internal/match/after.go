package match

import "fmt"

// FindAfter returns the index of the first route after another one that fits c, or None. It costs a look at each
// of them, and is for the same clients as [Table.Find].
func (t *Table) FindAfter(c *Client, after int) int {
	for i := after + 1; i < len(t.routes); i++ {
		if r := &t.routes[i]; r.named(c) && r.fits(c) {
			return i
		}
	}
	return None
}

// FindHidden is FindAfter of a client whose user and database cannot be read: it has them, within TLS that is passed
// through. It fails with [ErrUndecided] if they would decide: no client evades a route by hiding them.
func (t *Table) FindHidden(c *Client, after int) (int, error) {
	for i := after + 1; i < len(t.routes); i++ {
		r := &t.routes[i]
		switch {
		case !r.named(c) || !r.fitsBesidesLogin(c):
		case len(r.Users)+len(r.Databases) > 0:
			return None, fmt.Errorf("%w: its user and database are within TLS that is passed through", ErrUndecided)
		default:
			return i, nil
		}
	}
	return None, nil
}

// Possible returns the index of the first route after another one that may be that of a client of which only the source, the port and the
// TLVs are known, or None; certain says that nothing else decides whether it is. The table may be nil, and has no routes then.
func (t *Table) Possible(c *Client, after int) (i int, certain bool) {
	for i := after + 1; t != nil && i < len(t.routes); i++ {
		if r := &t.routes[i]; r.fitsFrom(c) {
			return i, !r.Hello() && !r.FirstBytes() && len(r.Users)+len(r.Databases) == 0
		}
	}
	return None, true
}

// named looks at the name alone.
func (r *route) named(c *Client) bool { return len(r.SNI) == 0 || oneName(r.SNI, c.ServerName) }
