package worker

import "net/netip"

// notes are what only few sessions have, beside their conns: sessions that have none of it pay
// nothing for it.
type notes struct {
	sources map[*conn]netip.AddrPort // of clients with a PROXY header that has one
	ends    map[*conn]func()         // to be called at the end of sessions that have rejoined
}

func newNotes() notes {
	return notes{sources: make(map[*conn]netip.AddrPort), ends: make(map[*conn]func())}
}

// note notes the source of a session that begins.
func (t *notes) note(n *conn, c *Client) {
	if c.Header.Known() {
		t.sources[n] = c.Header.Source
	}
}

// forget ends the notes on a session.
func (t *notes) forget(n *conn) {
	if len(t.ends) > 0 {
		if ended := t.ends[n]; ended != nil {
			delete(t.ends, n)
			ended()
		}
	}
	if len(t.sources) > 0 {
		delete(t.sources, n)
	}
}
