package page

import (
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// seen returns every number of the page, at one event.
const seen = `(() => {
	const cells = (row) => Object.fromEntries([...row.children].map((c) => [c.classList[0].slice(2), c.textContent]));
	const rows = (id) => Object.fromEntries([...document.querySelectorAll("#" + id + " .row")].filter((r) => !r.hidden).map((r) => [r.dataset.key, cells(r)]));
	const text = (id) => document.getElementById(id).textContent;
	return JSON.stringify({
		event: Number(document.documentElement.dataset.event),
		head: Object.fromEntries(["state", "generation", "version", "pid", "listeners-count", "upstreams-count"].map((id) => [id, text(id)])),
		tiles: Object.fromEntries([...document.querySelectorAll("#tiles > div")].map((d) => [d.dataset.tile, d.children[1].textContent + " | " + d.children[2].textContent])),
		legends: Object.fromEntries([...document.querySelectorAll(".legend li")].map((l) => [l.dataset.series, l.children[2].textContent])),
		levels: Object.fromEntries([...document.querySelectorAll("#levels button")].map((b) => [b.dataset.level, b.children[1].textContent])),
		verdicts: Object.fromEntries([...document.querySelectorAll("#verdicts tbody tr")].map((r) => [r.dataset.verdict, r.children[2].textContent])),
		listeners: rows("t-listeners"), upstreams: rows("t-upstreams"), endpoints: rows("t-endpoints"),
	});
})()`

// A view is the numbers of the page.
type view struct {
	Event                                  int64
	Head, Tiles, Legends, Levels, Verdicts map[string]string
	Listeners, Upstreams, Endpoints        map[string]map[string]string
}

func (b *browser) view() (v view) {
	b.Helper()
	must(b, json.Unmarshal([]byte(eval[string](b, seen)), &v))
	return v
}

// TestNumbersAreTheAPIs: while clients come, move bytes and go, every number on the page is that of the event that it shows.
// When they rest, it is that of GET /v1/status.
func TestNumbersAreTheAPIs(t *testing.T) {
	t.Parallel()
	p := startProgram(t, two(startServer(t), startServer(t), "10m"))
	f := follow(t, p.Client)
	b := openPage(t, p.page())
	stop := clients(t, p.State().Listeners[0].Addresses[0])
	compared := 0
	for last := b.view().Event; compared < 4; { // rates are known from the second event on
		var v view
		if !condition.Eventually(func() bool { v = b.view(); return v.Event > last+1 }) {
			t.Fatal("no further event on the page")
		}
		last = v.Event
		now, before := f.at(v.Event)
		if now == nil || before == nil { // one of the streams is a moment ahead
			continue
		}
		if diff := cmp.Diff(pair{now, before}.expected(), v); diff != "" {
			t.Errorf("event %d, the page (+) differs from the API (-):\n%s", v.Event, diff)
		}
		compared++
	}
	stop()
	p.Until("no session is left", func(s *admin.Status) bool { return s.Connections.Active == 0 })
	b.until("the page rests", `document.querySelector("[data-tile=sessions] dd").textContent === "0"`)
	st, v := p.State(), b.view()
	for _, tile := range []string{"accepted", "received", "sent"} {
		want := map[string]string{
			"accepted": "0 | " + group(st.Connections.Accepted) + " in all", "received": "0 B/s | " + display.Bytes(st.Bytes.ClientToEndpoint.All()) + " in all",
			"sent": "0 B/s | " + display.Bytes(st.Bytes.EndpointToClient.All()) + " in all",
		}[tile]
		if !condition.Eventually(func() bool { v = b.view(); return v.Tiles[tile] == want }) {
			t.Errorf("at rest, %s is %q, want %q", tile, v.Tiles[tile], want)
		}
	}
	for _, e := range st.Upstreams[0].Endpoints {
		if got := v.Endpoints["shop/"+e.Name]; got["total"] != group(e.Total) || got["active"] != group(e.Active) {
			t.Errorf("at rest, endpoint %s is %v, want %+v", e.Name, got, e)
		}
	}
}

// TestBytesOfTheLane: bytes that the lane forwards count as all others.
func TestBytesOfTheLane(t *testing.T) {
	t.Parallel()
	inLane := func(b *admin.Bytes) {
		for _, by := range []*admin.ByEngine{&b.ClientToEndpoint, &b.EndpointToClient} {
			*by = admin.ByEngine{Lane: by.All()}
		}
	}
	s := &stage{endpoints: 3, sessions: 9, at: began, runs: true, change: func(st *admin.Status) {
		inLane(&st.Bytes)
		inLane(&st.Listeners[0].Bytes)
		inLane(&st.Upstreams[0].Bytes)
		for i := range st.Upstreams[0].Endpoints {
			inLane(&st.Upstreams[0].Endpoints[i].Bytes)
		}
	}}
	bind := "unix:" + filepath.Join(t.TempDir(), "s")
	s.prepare(t, admin.Access{Bind: bind})
	client, err := admin.NewClient(bind)
	must(t, err)
	f := follow(t, client)
	b := openPage(t, gate(t, client))
	var v view
	var now, before *moment
	first := b.view().Event // rates are known from the second event on
	if !condition.Eventually(func() bool {
		v = b.view()
		now, before = f.at(v.Event)
		return v.Event > first+1 && now != nil && before != nil
	}) {
		t.Fatal("no further event on the page")
	}
	want := pair{now, before}.expected()
	for _, tile := range []string{"received", "sent", "spliced"} {
		if v.Tiles[tile] != want.Tiles[tile] {
			t.Errorf("%s is %q, want %q", tile, v.Tiles[tile], want.Tiles[tile])
		}
	}
	if v.Legends["lane"] != want.Legends["lane"] {
		t.Errorf("the chart has %q in the lane, want %q", v.Legends["lane"], want.Legends["lane"])
	}
	for _, of := range [][2]map[string]map[string]string{{v.Listeners, want.Listeners}, {v.Upstreams, want.Upstreams}, {v.Endpoints, want.Endpoints}} {
		for name, row := range of[1] {
			if got := of[0][name]; got["in"] != row["in"] || got["out"] != row["out"] {
				t.Errorf("%s: %s and %s, want %s and %s", name, got["in"], got["out"], row["in"], row["out"])
			}
		}
	}
}

// clients has clients come, move bytes and go, until stop is called.
func clients(t testing.TB, address string) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = c.Write(make([]byte, 1000*(i%9+1)))
			if _, e := io.ReadFull(c, make([]byte, 1000*(i%9+1))); err != nil || e != nil {
				t.Error(err, e)
			}
			c.Close()
		}
	}()
	return func() {
		close(over)
		<-done
	}
}
