package router

import (
	"testing"

	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// The bytes of running sessions are added up by listener, upstream and endpoint. Those of
// sessions to the clients' original destinations are added up by listener alone.
func TestRunning(t *testing.T) {
	door, up := NewListenerState("", nil), NewUpstream("u", nil)
	snap, e, f := NewSnapshot(up, &SnapshotConfig{}), &Endpoint{upstream: up}, &Endpoint{upstream: up}
	l := NewListener(&ListenerConfig{Name: "l", State: door})
	direct, ok := l.limits.Of.(worker.Binding)
	if !ok {
		t.Fatal("sessions without an upstream have no binding")
	}
	of := func(n int64) *worker.Bytes { return &worker.Bytes{EndpointToClient: worker.Moved{Spliced: n}} }
	r := NewRunning(map[worker.Binding]*worker.Bytes{l.newBinding(snap, e, nil, nil): of(1), l.newBinding(snap, f, nil, nil): of(2), l.newBinding(snap, f, nil, nil): of(4), direct: of(8)})
	if r.Listeners[door] != *of(15) || r.Upstreams[up] != *of(7) || r.Endpoints[e] != *of(1) || r.Endpoints[f] != *of(6) {
		t.Errorf("%+v", r)
	}
	direct.Moved(*of(16))
	if got := door.Bytes(); got != *of(16) || up.Bytes() != (worker.Bytes{}) {
		t.Errorf("of a session without an upstream: %+v, %+v", got, up.Bytes())
	}
}

// TestForget: nothing is kept of an endpoint that is gone, whether its last session began
// before its listener let go of it or after.
func TestForget(t *testing.T) {
	up := NewUpstream("u", nil)
	e, _, err := up.Endpoint("e", sockopt.Address{Network: "tcp", Name: "127.0.0.1:1"}, lb.EndpointConfig{ID: "e"})
	if err != nil {
		t.Fatal(err)
	}
	snap, l := NewSnapshot(up, &SnapshotConfig{}), NewListener(&ListenerConfig{State: NewListenerState("", nil)})
	kept := func() (n int) {
		l.bindings.Range(func(any, any) bool { n++; return true })
		return n
	}
	l.bindingOf(snap, e, nil, nil)
	if l.bindingOf(snap, e, nil, nil); kept() != 1 {
		t.Fatalf("%d bonds, want one for all sessions", kept())
	}
	up.Forget(e, nil)
	l.Forget(map[*Endpoint]bool{e: true})
	if kept() != 0 {
		t.Error("the binding of before is kept")
	}
	if b := l.bindingOf(snap, e, nil, nil); b.endpoint != e || kept() != 0 {
		t.Error("the binding of a client that was late is kept")
	}
}
