package server_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestLaneSizeAdopted: the size in force is that of the table, also of one that was adopted and that the file has another size for. A restart that sessions
// go on over changes nothing, and none is promised; after one without them the file's size is in force.
func TestLaneSizeAdopted(t *testing.T) {
	t.Parallel()

	pins := pinned(t)
	if pins == "" {
		return
	}
	endpoint := sockets.Server(t, sockets.Echo)
	with := func(sessions, leave string) string {
		return strings.Replace(pinnedConfig(endpoint, "lane: require", leave+"pins: "+pins), "sessions: 64", "sessions: "+sessions, 1)
	}
	first := start(t, with("64", "leave: true, "))
	c := client(t, first.At("l"))
	first.leaves(t, c)
	if err := first.End(); err != nil {
		t.Fatal(err)
	}
	for _, sessions := range []string{"128", "16"} {
		r := start(t, with(sessions, "leave: true, "))
		if s, want := r.Status(), []string{"lane.sessions: 64 → " + sessions + ", if no session goes on over it"}; s.Lane.Most != 64 || !slices.Equal(s.Restart, want) {
			t.Errorf("%d sessions, %q, want %q", s.Lane.Most, s.Restart, want)
		}
		r.Logs("sessions may leave user space", "sessions=64")
		r.Logs("a table of sessions with its own size", "sessions=64", "configured="+sessions)
		r.Reload(with("64", "leave: true, "))
		if got := r.Status().Restart; got != nil {
			t.Errorf("with the size in force %q wait for a restart", got)
		}
		if err := r.End(); err != nil {
			t.Fatal(err)
		}
	}
	last := start(t, with("128", ""))
	if s, want := last.Status(), []string{"lane.sessions: 64 → 128"}; s.Lane.Most != 64 || !slices.Equal(s.Restart, want) {
		t.Errorf("%d sessions, %q, want %q", s.Lane.Most, s.Restart, want)
	}
	_ = last.End() // it is cut
	r := start(t, with("128", ""))
	if s := r.Status(); s.Lane.Most != 128 || s.Restart != nil {
		t.Errorf("%d sessions, %q", s.Lane.Most, s.Restart)
	}
	if strings.Contains(r.Log.String(), "its own size") {
		t.Error("a table that was made is warned of")
	}
}
