package router

import (
	"testing"

	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestForget: nothing is kept of an endpoint that is gone, whether its last session began
// before its listener let go of it or after.
func TestForget(t *testing.T) {
	up := NewUpstream("u", nil)
	e, _, err := up.Endpoint("e", sockopt.Address{Network: "tcp", Name: "127.0.0.1:1"}, lb.EndpointConfig{ID: "e"})
	if err != nil {
		t.Fatal(err)
	}
	snap, l := NewSnapshot(up, &SnapshotConfig{}), NewListener(&ListenerConfig{State: new(ListenerState)})
	kept := func() (n int) {
		l.bindings.Range(func(any, any) bool { n++; return true })
		return n
	}
	l.bindingOf(snap, e, nil, nil)
	if l.bindingOf(snap, e, nil, nil); kept() != 1 {
		t.Fatalf("%d bonds, want one for all sessions", kept())
	}
	up.Forget(e)
	l.Forget(map[*Endpoint]bool{e: true})
	if kept() != 0 {
		t.Error("the binding of before is kept")
	}
	if b := l.bindingOf(snap, e, nil, nil); b.endpoint != e || kept() != 0 {
		t.Error("the binding of a client that was late is kept")
	}
}
