package router

import (
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A meter adds up the bytes of sessions that have ended.
type meter struct{ toEndpoint, toClient moved }

type moved struct{ spliced, copied, lane atomic.Int64 }

// add touches nothing that would not change: one engine does most of a session.
func (m *moved) add(o worker.Moved) {
	if o.Spliced != 0 {
		m.spliced.Add(o.Spliced)
	}
	if o.Copied != 0 {
		m.copied.Add(o.Copied)
	}
	if o.Lane != 0 {
		m.lane.Add(o.Lane)
	}
}

func (m *moved) load() worker.Moved {
	return worker.Moved{Spliced: m.spliced.Load(), Copied: m.copied.Load(), Lane: m.lane.Load()}
}

func (m *meter) add(b worker.Bytes) {
	m.toEndpoint.add(b.ClientToEndpoint)
	m.toClient.add(b.EndpointToClient)
}

func (m *meter) bytes() worker.Bytes {
	return worker.Bytes{ClientToEndpoint: m.toEndpoint.load(), EndpointToClient: m.toClient.load()}
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
	if b.key != nil {
		b.key.meter.add(bytes)
	}
}

// An originalDst is the binding of sessions to where clients wanted to go anyway, or to an endpoint that is not known.
type originalDst struct {
	state    *ListenerState
	upstream string // of one whose endpoint is not known
}

// Ended implements [worker.Binding].
func (originalDst) Ended(relay.Result, error) {}

// Names implements [worker.Binding].
func (o originalDst) Names() (upstream, endpoint string) { return o.upstream, "" }

// Moved implements [worker.Meter].
func (o originalDst) Moved(bytes worker.Bytes) { o.state.meter.add(bytes) }

// Running are the bytes of sessions that run, by binding.
type Running struct {
	Listeners map[*ListenerState]worker.Bytes
	Upstreams map[*Upstream]worker.Bytes
	Endpoints map[*Endpoint]worker.Bytes
	Keys      map[*KeyCount]worker.Bytes
}

// NewRunning adds up the running bytes of [worker.Group.Metered].
func NewRunning(moved map[worker.Binding]*worker.Bytes) *Running {
	r := &Running{make(map[*ListenerState]worker.Bytes), make(map[*Upstream]worker.Bytes), make(map[*Endpoint]worker.Bytes), make(map[*KeyCount]worker.Bytes)}
	for b, bytes := range moved {
		switch b := b.(type) {
		case *binding:
			put(r.Listeners, b.listener.state, bytes)
			put(r.Upstreams, b.snapshot.upstream, bytes)
			put(r.Endpoints, b.endpoint, bytes)
			if b.key != nil {
				put(r.Keys, b.key, bytes)
			}
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
