package server_test

import "testing"

// TestNowhere: a listener with neither a route nor an upstream refuses and counts each client.
func TestNowhere(t *testing.T) {
	t.Parallel()

	r := start(t, `
listeners: [{name: closed, bind: "127.0.0.1:0"}]`)
	refused(t, r.At("closed"))
	refused(t, r.At("closed"))
	r.Until("both clients are counted", func() bool { return r.Refused("closed", "no_route") == 2 })
}
