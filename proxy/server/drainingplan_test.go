package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestDrainingUnder: sessions of an address that a reload or a drain of their listener has given up are known as such before the next reload, unless that gives
// them back.
func TestDrainingUnder(t *testing.T) {
	t.Parallel()

	two, three, to := sockets.Port(t), sockets.Port(t), sockets.Server(t, sockets.Echo)
	text := func(binds string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: [%s], upstream: u}, {name: m, bind: "127.0.0.1:%s", upstream: u}]
upstreams: [{name: u, drain_timeout: 1h, endpoints: [%q]}]`, binds, three, to)
	}
	const one = `"127.0.0.1:0"`
	less, both := text(one), text(one+`, "127.0.0.1:`+two+`"`)
	r := start(t, both)
	stays, drains, drained := client(t, r.At("l")), client(t, "127.0.0.1:"+two), client(t, "127.0.0.1:"+three)
	echoes(t, stays, "stays")
	echoes(t, drains, "drains")
	echoes(t, drained, "drained")
	expect := func(next string, want map[string]int64) {
		t.Helper()
		got := r.DrainingUnder(r.Load(next))
		for name, of := range got {
			if of.Sessions != want[name] || of.Within <= 0 || of.Within > time.Hour {
				t.Errorf("%s: %+v, want %d", name, of, want[name])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	expect(less, map[string]int64{})
	r.Reload(less)
	expect(less, map[string]int64{"l": 1})
	expect(both, map[string]int64{})
	if err := r.DrainListener("m", "test"); err != nil {
		t.Fatal(err)
	}
	expect(less, map[string]int64{"l": 1, "m": 1})
	r.Reload(both)
	expect(both, map[string]int64{"m": 1})
	drained.Close()
	r.Until("it has ended", func() bool { return len(r.DrainingUnder(r.Load(both))) == 0 })
}
