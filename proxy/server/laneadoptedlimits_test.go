package server_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneAdoptedLimits: adopted sessions take places of the process and of their source, and give them back at their end.
func TestLaneAdoptedLimits(t *testing.T) {
	t.Parallel()

	text := `limits: {connections: 4}
listeners: [{name: one, bind: "127.0.0.1:0", upstream: u, limits: {per_source: 1}}, {name: two, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [` + sockets.Server(t, sockets.Echo) + `]}]`
	r, clients := adopts(t, text, text, nil, "one", "two", "two")
	if r == nil {
		return
	}
	r.Until("they are adopted", func() bool { return r.Status().Lane.AdoptedActive == 3 })
	all := r.adoptedBy(t, admin.SessionQuery{})
	end := func(i int) {
		t.Helper()
		q := admin.SessionQuery{ID: all[clients[i].LocalAddr().String()].ID}
		if ended, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: q, Now: true}, "test"); err != nil || ended.Ended != 1 {
			t.Fatal(ended, err)
		}
	}
	refused(t, r.At("one"))
	if n := r.Refused("one", "per_source"); n != 1 {
		t.Errorf("%d clients were refused for their source", n)
	}
	echoes(t, client(t, r.At("two")), "the last place")
	r.Logs("limit of connections reached")
	if c := r.Status().Connections; c.Active != 4 || c.Most != 4 {
		t.Errorf("%+v", c)
	}
	waits := client(t, r.At("two"))
	end(1)
	echoes(t, waits, "the place of an adopted session")
	waits = client(t, r.At("one"))
	end(0)
	echoes(t, waits, "its source has room again")
	list, err := r.Sources(t.Context(), admin.SourceQuery{})
	if err != nil || len(list.Sources) != 1 || list.Sources[0].Connections != 4 {
		t.Errorf("%+v, %v", list, err)
	}
	echoes(t, clients[2], "it goes on")
}
