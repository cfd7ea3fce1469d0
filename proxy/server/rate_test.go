package server_test

import (
	"fmt"
	"testing"
	"time"
)

// TestListenerRate: clients beyond the rate are accepted later, and none is refused.
func TestListenerRate(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, limits: {per_second: 10}}]
upstreams: [{name: u, endpoints: [%q]}]`, a))
	at := r.At("l")
	began := time.Now()
	const clients = 15 // a burst of ten passes at once
	for range clients {
		whose(t, at)
	}
	if took, least := time.Since(began), 400*time.Millisecond; took < least || took > 10*least {
		t.Errorf("serving took %v, want %v at least", took, least)
	}
	if s := r.Summary(); s.Connections.Refused != 0 || s.AcceptPauses != 0 {
		t.Errorf("%+v", s.Connections)
	}
}
