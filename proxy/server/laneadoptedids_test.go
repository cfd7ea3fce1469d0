package server_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// adopts starts a process, has a session of each of some listeners leave user space, calls do unless that is nil, ends the process, and starts the next one, which adopts them.
func adopts(t *testing.T, first, second string, do func(clients []*net.TCPConn), listeners ...string) (next *rig, clients []*net.TCPConn) {
	t.Helper()
	pins := pinned(t)
	if pins == "" {
		return nil, nil
	}
	lane := "lane: {devices: [lo], sessions: 64, after: 5ms, default: require, leave: true, pins: " + pins + "}\n"
	before := start(t, lane+first)
	for n, listener := range listeners {
		clients = append(clients, before.leaveBy(t, listener, n+1))
	}
	if do != nil {
		do(clients)
	}
	if err := before.End(); err != nil {
		t.Fatal(err)
	}
	next = start(t, lane+second)
	for _, c := range clients {
		_ = c.SetDeadline(time.Now().Add(patience)) // to start may have taken as long
	}
	return next, clients
}

// changed returns the configuration that was loaded last, with texts in place of others, as strings.NewReplacer takes them.
func (r *rig) changed(t *testing.T, texts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.Dir, "penstock.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(texts...).Replace(string(b))
}

// TestLaneAdoptedIDs: an adopted session has an ID for its life, by which it is listed and ended, alone, also in the processes that adopt it later. It is found by a
// name that a reload has taken away.
func TestLaneAdoptedIDs(t *testing.T) {
	t.Parallel()

	const third = `, {name: three, bind: "127.0.0.1:0", upstream: u}`
	text := `listeners: [{name: one, bind: "127.0.0.1:0", upstream: u}, {name: two, bind: "127.0.0.1:0", upstream: u}` + third + `]
upstreams: [{name: u, health_check: off, endpoints: [` + sockets.Server(t, sockets.Echo) + `]}]`
	r, clients := adopts(t, text, text, nil, "one", "two", "three")
	if r == nil {
		return
	}
	var ids []string
	all := r.adoptedBy(t, admin.SessionQuery{})
	for _, c := range clients {
		echoes(t, c, "adopted")
		ids = append(ids, all[c.LocalAddr().String()].ID)
	}
	end := func(id string, dry bool) admin.Ended {
		t.Helper()
		ended, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: admin.SessionQuery{ID: id}, Now: !dry, DryRun: dry}, "test")
		if err != nil {
			t.Fatal(err)
		}
		return ended
	}
	if e := end(ids[0], true); e.Touched != 1 || e.Ended != 0 {
		t.Errorf("%+v", e)
	}
	if e := end(ids[0], false); e.Touched != 1 || e.Ended != 1 {
		t.Errorf("%+v", e)
	}
	r.wantEnd(t, clients[0], "listener=one", "ended by an operator")
	r.Until("it is not listed", func() bool { return len(r.adoptedBy(t, admin.SessionQuery{ID: ids[0]})) == 0 })
	if e := end(ids[0], false); e.Touched != 0 || e.Ended != 0 {
		t.Errorf("after its end: %+v", e)
	}
	r.Reload(r.changed(t, third, "", "name: one", "name: other"))
	for i, listener := range []string{"two", "three"} {
		at, id := clients[i+1].LocalAddr().String(), ids[i+1]
		for name, q := range map[string]admin.SessionQuery{"id": {ID: id}, "listener": {Listener: listener}} {
			if got := r.adoptedBy(t, q); len(got) != 1 || got[at].ID != id || got[at].Listener != listener || !strings.HasPrefix(id, "a.") {
				t.Errorf("by its %s %s: %+v", name, id, got)
			}
		}
		echoes(t, clients[i+1], "it goes on")
	}
	newer := r.leaveBy(t, "two", 1)
	if err := r.End(); err != nil {
		t.Fatal(err)
	}
	last := start(t, r.changed(t))
	clients, ids = append(clients, newer), append(ids, "")
	all = last.adoptedBy(t, admin.SessionQuery{})
	for i, c := range clients[1:] {
		_ = c.SetDeadline(time.Now().Add(patience))
		if id := all[c.LocalAddr().String()].ID; id == "" || ids[i+1] != "" && id != ids[i+1] || slices.Contains(ids[:i+1], id) {
			t.Errorf("adopted once more it has the ID %q, want %q, and none of the others' of %q", id, ids[i+1], ids)
		}
		echoes(t, c, "adopted once more")
	}
	if len(all) != 3 || len(last.adoptedBy(t, admin.SessionQuery{ID: ids[0]})) != 0 {
		t.Errorf("%v, or the ID of a session that has ended is another one's", all)
	}
	ended, err := last.EndSessions(t.Context(), admin.EndQuery{SessionQuery: admin.SessionQuery{ID: ids[1]}, Now: true}, "test")
	if err != nil || ended.Ended != 1 {
		t.Errorf("by the ID of the process before: %+v, %v", ended, err)
	}
	last.wantEnd(t, clients[1], "ended by an operator")
}

// TestLaneAdoptedOfUnknown: adopted sessions whose listener and upstream are not known are selected by a name that no part of a file can have, and not by that of a listener
// that is called unknown.
func TestLaneAdoptedOfUnknown(t *testing.T) {
	t.Parallel()

	endpoint := sockets.Server(t, sockets.Echo)
	text := `listeners: [{name: unknown, bind: "127.0.0.1:0", upstream: unknown}%s
upstreams: [{name: unknown, health_check: off, endpoints: [` + endpoint + `]}%s`
	first := fmt.Sprintf(text, `, {name: old, bind: "127.0.0.1:0", upstream: shop}]`, `, {name: shop, health_check: off, endpoints: [`+endpoint+`]}]`)
	r, clients := adopts(t, first, fmt.Sprintf(text, "]", "]"), nil, "unknown", "old")
	if r == nil {
		return
	}
	known, old := clients[0].LocalAddr().String(), clients[1].LocalAddr().String()
	for want, names := range map[string]string{known: "unknown", old: admin.UnknownName} {
		for _, q := range []admin.SessionQuery{{Listener: names}, {Upstream: names}, {Listener: names, Upstream: names}} {
			if got := r.adoptedBy(t, q); len(got) != 1 || got[want].Client == "" {
				t.Errorf("%+v has %v, want %s", q, got, want)
			}
		}
		if w, err := r.Server.Why(t.Context(), admin.WhyQuery{Listener: names}); err != nil || w.Count != 1 || w.Sessions[0].Client != want {
			t.Errorf("why %s: %+v, %v", names, w, err)
		}
	}
	gone := func(also string) {
		t.Helper()
		for of, q := range map[string]admin.SessionQuery{"listener": {Listener: "gone"}, "upstream": {Upstream: "gone"}} {
			want := of + ` "gone": not found: there are unknown` + also
			if _, err := r.Sessions(t.Context(), q, admin.SessionOrder{}); err == nil || err.Error() != want {
				t.Errorf("%+v: %v, want %q", q, err, want)
			}
		}
	}
	gone(", " + admin.UnknownName)
	q := admin.EndQuery{SessionQuery: admin.SessionQuery{Listener: admin.UnknownName}, Now: true}
	if ended, err := r.EndSessions(t.Context(), q, "test"); err != nil || ended.Ended != 1 {
		t.Errorf("%+v, %v", ended, err)
	}
	r.wantEnd(t, clients[1], "listener="+admin.UnknownName, "upstream="+admin.UnknownName)
	r.Until("none is listed", func() bool { return len(r.adoptedBy(t, q.SessionQuery)) == 0 })
	if ended, err := r.EndSessions(t.Context(), q, "test"); err != nil || ended.Touched != 0 {
		t.Errorf("of none: %+v, %v", ended, err)
	}
	gone("")
	echoes(t, clients[0], "it goes on")
}
