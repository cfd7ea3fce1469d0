package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// TestWhatIsDoneByHandIsLogged: an operator's changes are logged with author, object, old and new
// value.
func TestWhatIsDoneByHandIsLogged(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{split: [{upstream: u, percent: 95}, {upstream: v, percent: 5}]}]}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: e, weight: 3}]}
  - {name: v, endpoints: [%[1]q]}`, named(t, "a")))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.SetWeight("u", "e", 7, "test"))
	r.Logs("level=INFO", "by=test", "what=weight", "upstream=u", "endpoint=e", "from=3", "to=7")
	must(r.SetWeight("u", "e", 2, "test"))
	r.Logs("what=weight", "from=7", "to=2")
	must(r.SetSplit("l", 0, map[string]float64{"u": 50, "v": 50}, "test"))
	r.Logs("by=test", "what=split", "listener=l", "route=0", "from=u:95,v:5", "to=u:50,v:50")
	must(r.DrainEndpoint("u", "e", true, "test"))
	r.Logs("by=test", "what=drain", "upstream=u", "endpoint=e", "from=ready", "to=drain")
	must(r.DrainEndpoint("u", "e", false, "test"))
	r.Logs("by=test", "what=ready", "upstream=u", "endpoint=e", "from=drain", "to=ready")
	must(r.DrainListener("l", "test"))
	r.Logs("by=test", "what=drain", "listener=l", "from=serving", "to=draining")
}

// TestAnAddressOfSeveral: an address that several endpoints share does not choose one of them.
func TestAnAddressOfSeveral(t *testing.T) {
	t.Parallel()

	up := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: e}, {address: %[1]q, name: f}]}]`, up))
	for _, err := range []error{r.DrainEndpoint("u", up, true, "test"), r.SetWeight("u", up, 7, "test")} {
		if !errors.Is(err, admin.ErrInvalid) || !strings.Contains(err.Error(), "it is the address of several: write one of e, f") {
			t.Errorf("one is chosen: %v", err)
		}
	}
	for _, e := range r.Status().Upstreams[0].Endpoints {
		if e.Weight != 1 || e.State != admin.Up {
			t.Errorf("%+v", e)
		}
	}
}
