package server_test

import (
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// TestTLSSessionsRunOnLoops: a joined session whose TLS ends or begins here has a loop, is counted as copied and
// wrapped, and takes no goroutine.
func TestTLSSessionsRunOnLoops(t *testing.T) {
	g := newTLSRig(t)
	for _, listener := range []string{"ended", "begun"} {
		_, _, _ = g.session(listener) // whatever is made once
		before := runtime.NumGoroutine()
		const many = 20
		var held []net.Conn
		for range many {
			spoken, beneath, plain := g.session(listener)
			held = append(held, spoken, beneath, plain)
		}
		g.Until(fmt.Sprintf("%s: no goroutine for each session", listener), func() bool {
			return runtime.NumGoroutine() < before+2*many // those of the test's own server are one for each
		})
		for _, s := range g.list(admin.SessionQuery{}, admin.SessionOrder{}) {
			if s.Loop < 0 {
				t.Errorf("%s: %+v", listener, s)
			}
		}
		for _, c := range held {
			_ = c.Close()
		}
	}
}
