package core

import "github.com/penstock/penstock/relay"

// Bytes are what sessions have moved, by direction and engine.
type Bytes struct{ ClientToEndpoint, EndpointToClient Moved }

// Add adds others.
func (b *Bytes) Add(o Bytes) {
	b.ClientToEndpoint.add(o.ClientToEndpoint)
	b.EndpointToClient.add(o.EndpointToClient)
}

// bytesOf are those of a session; its a is the client.
func bytesOf(r *relay.Result) Bytes {
	return Bytes{Moved{r.AToB.Spliced, r.AToB.Copied}, Moved{r.BToA.Spliced, r.BToA.Copied}}
}

// A Meter is a [Bond] that adds up what its sessions have moved.
type Meter interface {
	Bond
	// Moved is told what sessions have moved that have ended: of each one, once, together
	// with others or by itself, by any goroutine. It must not wait.
	Moved(b Bytes)
}

// A tally is bytes by bond. That of a nil map is not wanted.
type tally map[Bond]*Bytes

func (t tally) add(b Bond, bytes Bytes) {
	sum := t[b]
	if sum == nil {
		sum = new(Bytes)
		t[b] = sum
	}
	sum.Add(bytes)
}

// tell tells the meters, and forgets.
func (t tally) tell() {
	for b, bytes := range t {
		b.(Meter).Moved(*bytes)
	}
	clear(t)
}

// ended has a meter told of a session that has ended, if its bond is one: at once, or where
// there is a tally by tell.
func (t tally) ended(b Bond, r *relay.Result) {
	m, ok := b.(Meter)
	switch {
	case !ok:
	case t != nil:
		t.add(b, bytesOf(r))
	default:
		m.Moved(bytesOf(r))
	}
}
