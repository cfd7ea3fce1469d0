package server_test

import "testing"

// TestUnresolvedEndpoint: the status of an endpoint without a check says that its name does not resolve, before a client finds out.
func TestUnresolvedEndpoint(t *testing.T) {
	t.Parallel()

	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{name: none, address: "none.invalid:1"}, {name: local, address: "localhost:1"}, {name: literal, address: "127.0.0.1:1"}], health_check: off}]`)
	r.Until("the name is looked up", func() bool { return r.Endpoint("u", "none").Unresolved != "" })
	for _, name := range []string{"local", "literal"} {
		if why := r.Endpoint("u", name).Unresolved; why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
}
