package worker

import "github.com/penstock/penstock/relay"

// An EndCounter is a [Binding] that counts the ends of its sessions by loop, so that loops need not
// share counters.
type EndCounter interface {
	Binding
	// Counted is called at the end of a session, once, with the index of its loop, or of the one
	// that the client came from, and the error of [Binding.Ended]. It must not wait.
	Counted(loop int, r relay.Result, err error)
}

// countEnd counts the end of a session, if its binding does.
func countEnd(b Binding, loop int, r relay.Result, err error) {
	if c, ok := b.(EndCounter); ok {
		c.Counted(loop, r, err)
	}
}

// Loop returns the index of the loop that the client came in by.
func (c *Client) Loop() int { return c.loop }
