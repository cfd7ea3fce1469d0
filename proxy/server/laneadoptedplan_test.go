package server_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneAdoptedEnding: the adopted sessions that new timeouts end are known before, and are those that end.
func TestLaneAdoptedEnding(t *testing.T) {
	t.Parallel()

	text := `listeners: [{name: one, bind: "127.0.0.1:0", upstream: u, timeouts: {idle: 1h}}, {name: two, bind: "127.0.0.1:0", upstream: u, timeouts: {lifetime: 1h}}, {name: three, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [` + sockets.Server(t, sockets.Echo) + `]}]`
	r, clients := adopts(t, text, text, nil, "one", "two", "two", "three")
	if r == nil {
		return
	}
	r.Until("they are adopted", func() bool { return r.Status().Lane.AdoptedActive == 4 })
	for _, c := range clients {
		echoes(t, c, "adopted")
	}
	const short = "lifetime: 1ms"
	shorter := r.changed(t, "idle: 1h", "idle: 50ms", "lifetime: 1h", short)
	for next, want := range map[string]map[string]int64{
		r.changed(t): {}, r.changed(t, "idle: 1h", "idle: 2h", "lifetime: 1h", "lifetime: 30m"): {}, r.changed(t, "lifetime: 1h", short): {"two": 2}, r.changed(t, "lifetime: 1h", short, "name: two", "name: other"): {},
	} {
		if got := r.AdoptedEnding(r.Load(next)); len(got) != len(want) || got["two"] != want["two"] {
			t.Errorf("%v, want %v by\n%s", got, want, next)
		}
	}
	after := r.Load(shorter)
	r.Until("one has rested", func() bool {
		return len(r.adoptedBy(t, admin.SessionQuery{Listener: "one", Idle: 50 * time.Millisecond})) == 1
	})
	if got := r.AdoptedEnding(after); len(got) != 2 || got["one"] != 1 || got["two"] != 2 {
		t.Errorf("%v", got)
	}
	if err := r.Apply(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	r.wantEnd(t, clients[0], "listener=one", "it was idle for too long")
	r.wantEnd(t, clients[1], "listener=two", "it has reached its lifetime")
	r.wantEnd(t, clients[2], "listener=two", "it has reached its lifetime")
	if got := r.AdoptedEnding(after); len(got) != 0 {
		t.Errorf("after that: %v", got)
	}
	echoes(t, clients[3], "it goes on")
}
