package worker

import "github.com/penstock/penstock/relay"

// Bytes are the bytes that sessions have moved, by direction and engine.
type Bytes struct{ ClientToEndpoint, EndpointToClient Moved }

// Add adds others.
func (b *Bytes) Add(o Bytes) {
	b.ClientToEndpoint.add(o.ClientToEndpoint)
	b.EndpointToClient.add(o.EndpointToClient)
}

// bytesOf are those of a session; its a is the client.
func bytesOf(r *relay.Result) Bytes {
	return Bytes{movedBy(&r.AToB), movedBy(&r.BToA)}
}

// A Meter is a [Binding] that adds up the bytes of its sessions.
type Meter interface {
	Binding
	// Moved gets the bytes of sessions that have ended: of each one, once, together with
	// others or by itself, by any goroutine. It must not wait.
	Moved(b Bytes)
}

// A bytesByBinding is bytes by binding. That of a nil map is not wanted.
type bytesByBinding map[Binding]*Bytes

func (t bytesByBinding) add(b Binding, bytes Bytes) {
	sum := t[b]
	if sum == nil {
		sum = new(Bytes)
		t[b] = sum
	}
	sum.Add(bytes)
}

// report passes the bytes to the meters, and clears them.
func (t bytesByBinding) report() {
	for b, bytes := range t {
		b.(Meter).Moved(*bytes)
	}
	clear(t)
}

// ended passes the bytes of an ended session to its meter, if its binding is one: at once, or
// with a tally by report.
func (t bytesByBinding) ended(b Binding, r *relay.Result) {
	m, ok := b.(Meter)
	switch {
	case !ok:
	case t != nil:
		t.add(b, bytesOf(r))
	default:
		m.Moved(bytesOf(r))
	}
}
