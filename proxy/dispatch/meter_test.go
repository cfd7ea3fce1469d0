package dispatch

import (
	"testing"

	"github.com/penstock/penstock/proxy/core"
)

// BenchmarkMoved is what the end of a session pays for being metered, where all end at the
// same listener and endpoint.
func BenchmarkMoved(b *testing.B) {
	up := NewUpstream("u", nil)
	bond := &bond{listener: &Listener{door: new(Door)}, view: NewView(up, &ViewConfig{}), endpoint: &Endpoint{up: up}}
	bytes := core.Bytes{ClientToEndpoint: core.Moved{Copied: 5}, EndpointToClient: core.Moved{Spliced: 7, Copied: 5}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			bond.Moved(bytes)
		}
	})
}

// What is running is added up by listener, upstream and endpoint, and sessions to where
// clients wanted to go anyway by listener alone.
func TestRunning(t *testing.T) {
	door, up := new(Door), NewUpstream("u", nil)
	v, e, f := NewView(up, &ViewConfig{}), &Endpoint{up: up}, &Endpoint{up: up}
	l := NewListener(&ListenerConfig{Name: "l", Door: door})
	direct, ok := l.limits.Of.(core.Bond)
	if !ok {
		t.Fatal("sessions without an upstream have no bond")
	}
	of := func(n int64) *core.Bytes { return &core.Bytes{EndpointToClient: core.Moved{Spliced: n}} }
	r := NewRunning(map[core.Bond]*core.Bytes{l.newBond(v, e, nil): of(1), l.newBond(v, f, nil): of(2), l.newBond(v, f, nil): of(4), direct: of(8)})
	if r.Doors[door] != *of(15) || r.Upstreams[up] != *of(7) || r.Endpoints[e] != *of(1) || r.Endpoints[f] != *of(6) {
		t.Errorf("%+v", r)
	}
	direct.(core.Meter).Moved(*of(16))
	if got := door.Bytes(); got != *of(16) || up.Bytes() != (core.Bytes{}) {
		t.Errorf("of a session without an upstream: %+v, %+v", got, up.Bytes())
	}
}
