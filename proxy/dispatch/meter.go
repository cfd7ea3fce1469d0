package dispatch

import (
	"sync/atomic"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/relay"
)

// A meter adds up what sessions have moved that have ended.
type meter struct{ toEndpoint, toClient moved }

type moved struct{ spliced, copied atomic.Int64 }

// add touches nothing that would not change: one engine does most of a session.
func (m *moved) add(o core.Moved) {
	if o.Spliced != 0 {
		m.spliced.Add(o.Spliced)
	}
	if o.Copied != 0 {
		m.copied.Add(o.Copied)
	}
}

func (m *meter) add(b core.Bytes) {
	m.toEndpoint.add(b.ClientToEndpoint)
	m.toClient.add(b.EndpointToClient)
}

func (m *meter) bytes() core.Bytes {
	return core.Bytes{
		ClientToEndpoint: core.Moved{Spliced: m.toEndpoint.spliced.Load(), Copied: m.toEndpoint.copied.Load()},
		EndpointToClient: core.Moved{Spliced: m.toClient.spliced.Load(), Copied: m.toClient.copied.Load()},
	}
}

// Bytes returns what sessions have moved that have come in there and have ended, see
// [core.Group.Metered].
func (d *Door) Bytes() core.Bytes { return d.meter.bytes() }

// Bytes returns what sessions to its endpoints have moved that have ended, see
// [core.Group.Metered].
func (u *Upstream) Bytes() core.Bytes { return u.meter.bytes() }

// Bytes returns what sessions to it have moved that have ended, see [core.Group.Metered].
func (e *Endpoint) Bytes() core.Bytes { return e.meter.bytes() }

var (
	_ core.Meter = (*bond)(nil)
	_ core.Meter = origin{}
)

// Moved implements [core.Meter].
func (b *bond) Moved(bytes core.Bytes) {
	b.listener.door.meter.add(bytes)
	b.view.up.meter.add(bytes)
	b.endpoint.meter.add(bytes)
}

// An origin is the bond of sessions to where clients wanted to go anyway.
type origin struct{ door *Door }

// Ended implements [core.Bond].
func (origin) Ended(relay.Result, error) {}

// Names implements [core.Bond].
func (origin) Names() (upstream, endpoint string) { return "", "" }

// Moved implements [core.Meter].
func (o origin) Moved(bytes core.Bytes) { o.door.meter.add(bytes) }

// Running are the bytes of sessions that run, by what these are bound to.
type Running struct {
	Doors     map[*Door]core.Bytes
	Upstreams map[*Upstream]core.Bytes
	Endpoints map[*Endpoint]core.Bytes
}

// NewRunning adds up what [core.Group.Metered] tells of them.
func NewRunning(of map[core.Bond]*core.Bytes) *Running {
	r := &Running{make(map[*Door]core.Bytes), make(map[*Upstream]core.Bytes), make(map[*Endpoint]core.Bytes)}
	for b, bytes := range of {
		switch b := b.(type) {
		case *bond:
			put(r.Doors, b.listener.door, bytes)
			put(r.Upstreams, b.view.up, bytes)
			put(r.Endpoints, b.endpoint, bytes)
		case origin:
			put(r.Doors, b.door, bytes)
		}
	}
	return r
}

func put[K comparable](sums map[K]core.Bytes, of K, bytes *core.Bytes) {
	sum := sums[of]
	sum.Add(*bytes)
	sums[of] = sum
}
