package server_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneRestart: the first configuration that wants the lane opens it with the keys that it has. From then on a change of them takes a
// restart, and the status says so until the file is as it was, which a plan says of no key that would be so; lane.default is of the listeners.
func TestLaneRestart(t *testing.T) {
	t.Parallel()

	if !laned(t) {
		return
	}
	endpoint := sockets.Server(t, sockets.Echo)
	with := func(keys, listener string) string {
		return strings.Replace(laneConfig(endpoint, listener), "sessions: 64, ", keys, 1)
	}
	r := start(t, strings.Replace(with("sessions: 64, ", "lane: auto"), "[lo]", "[nowhere]", 1))
	r.Until("it could not be opened", func() bool { return r.Status().Lane.State == admin.LaneUnavailable })
	if got := r.Awaiting(r.Load(with("sessions: 128, ", "lane: off"))); got != nil {
		t.Errorf("without a lane %q would wait for a restart", got)
	}
	r.Reload(with("sessions: 128, ", "lane: off"))
	if got := r.Status().Restart; got != nil {
		t.Errorf("without a lane: %q", got)
	}
	r.Reload(with("sessions: 256, ", "lane: require"))
	if s := r.Status(); s.Restart != nil || s.Lane.State != admin.LaneOn || s.Lane.Most != 256 {
		t.Errorf("%q, %+v", s.Restart, s.Lane)
	}
	r.Reload(with("sessions: 512, leave: false, default: auto, ", "lane: require"))
	if s, want := r.Status(), []string{"lane.sessions: 256 → 512"}; !slices.Equal(s.Restart, want) || s.Lane.Most != 256 {
		t.Errorf("%q, want %q; %+v", s.Restart, want, s.Lane)
	}
	awaits := func(text string, want ...string) {
		t.Helper()
		if got := r.Awaiting(r.Load(text)); !slices.Equal(got, want) {
			t.Errorf("%q would wait for a restart, want %q", got, want)
		}
	}
	awaits(with("sessions: 512, ", "lane: require"), "lane.sessions") // as it is
	awaits(with("sessions: 256, ", "lane: require"))                  // as it is in force
	awaits(with("sessions: 128, pins: /p, ", "lane: require"), "lane.sessions", "lane.pins")
	awaits(with("sessions: 256, ", "lane: off")+"\nlimits: {memory: {mlock: true}}", "limits.memory.mlock")
	r.Logs("takes effect when the process is started again", "lane.sessions: 256 → 512")
	r.Reload(with("sessions: 256, default: auto, ", "lane: off"))
	if got := r.Status().Restart; got != nil {
		t.Errorf("as it was: %q", got)
	}
}
