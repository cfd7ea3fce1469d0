package router

import (
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A meter adds up the bytes of sessions that have ended.
type meter struct{ toEndpoint, toClient moved }

type moved struct{ spliced, copied atomic.Int64 }

// add touches nothing that would not change: one engine does most of a session.
func (m *moved) add(o worker.Moved) {
	if o.Spliced != 0 {
		m.spliced.Add(o.Spliced)
	}
	if o.Copied != 0 {
		m.copied.Add(o.Copied)
	}
}

func (m *meter) add(b worker.Bytes) {
	m.toEndpoint.add(b.ClientToEndpoint)
	m.toClient.add(b.EndpointToClient)
}

func (m *meter) bytes() worker.Bytes {
	return worker.Bytes{
		ClientToEndpoint: worker.Moved{Spliced: m.toEndpoint.spliced.Load(), Copied: m.toEndpoint.copied.Load()},
		EndpointToClient: worker.Moved{Spliced: m.toClient.spliced.Load(), Copied: m.toClient.copied.Load()},
	}
}

// Bytes returns the bytes of ended sessions that have come in there, see
// [worker.Group.Metered].
func (state *ListenerState) Bytes() worker.Bytes { return state.meter.bytes() }

// Bytes returns the bytes of ended sessions to its endpoints, see [worker.Group.Metered].
func (u *Upstream) Bytes() worker.Bytes { return u.meter.bytes() }

// Bytes returns the bytes of ended sessions to it, see [worker.Group.Metered].
func (e *Endpoint) Bytes() worker.Bytes { return e.meter.bytes() }

var (
	_ worker.Meter = (*binding)(nil)
	_ worker.Meter = originalDst{}
)

// Moved implements [worker.Meter].
func (b *binding) Moved(bytes worker.Bytes) {
	b.listener.state.meter.add(bytes)
	b.snapshot.upstream.meter.add(bytes)
	b.endpoint.meter.add(bytes)
}

// An originalDst is the binding of sessions to where clients wanted to go anyway.
type originalDst struct{ state *ListenerState }

// Ended implements [worker.Binding].
func (originalDst) Ended(relay.Result, error) {}

// Names implements [worker.Binding].
func (originalDst) Names() (upstream, endpoint string) { return "", "" }

// Moved implements [worker.Meter].
func (o originalDst) Moved(bytes worker.Bytes) { o.state.meter.add(bytes) }

// Running are the bytes of sessions that run, by binding.
type Running struct {
	Listeners map[*ListenerState]worker.Bytes
	Upstreams map[*Upstream]worker.Bytes
	Endpoints map[*Endpoint]worker.Bytes
}

// NewRunning adds up the running bytes of [worker.Group.Metered].
func NewRunning(moved map[worker.Binding]*worker.Bytes) *Running {
	r := &Running{make(map[*ListenerState]worker.Bytes), make(map[*Upstream]worker.Bytes), make(map[*Endpoint]worker.Bytes)}
	for b, bytes := range moved {
		switch b := b.(type) {
		case *binding:
			put(r.Listeners, b.listener.state, bytes)
			put(r.Upstreams, b.snapshot.upstream, bytes)
			put(r.Endpoints, b.endpoint, bytes)
		case originalDst:
			put(r.Listeners, b.state, bytes)
		}
	}
	return r
}

func put[K comparable](sums map[K]worker.Bytes, key K, bytes *worker.Bytes) {
	sum := sums[key]
	sum.Add(*bytes)
	sums[key] = sum
}
