package server_test

import (
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneGoOn: while a process drains with lane.leave it waits for the sessions in user space, as its message says, and has those that go on without it
// for none of its own: changes of the lane are refused, and reset nothing.
func TestLaneGoOn(t *testing.T) {
	t.Parallel()

	endpoint := sockets.Server(t, sockets.Echo)
	text := `listeners: [{name: web, bind: "127.0.0.1:0", upstream: u}, {name: here, bind: "127.0.0.1:0", upstream: u, lane: off}]
upstreams: [{name: u, health_check: off, endpoints: [` + endpoint + `]}]`
	r, adopted := adopts(t, text, text, nil, "web")
	if r == nil {
		return
	}
	r.Until("it is adopted", func() bool { return r.Status().Lane.AdoptedActive == 1 })
	own, here := r.leaveBy(t, "web", 1), client(t, r.At("here"))
	echoes(t, here, "here")
	if s := r.Status().Lane; s.Active != 2 || s.GoOn != 0 {
		t.Errorf("%+v", s)
	}
	if changed, err := r.SwitchLane(true, "test"); err != nil || changed.State != admin.LaneOn {
		t.Error(changed, err)
	}
	r.SetAfter(func(time.Duration, func()) *time.Timer { return time.NewTimer(time.Hour) }) // the drain ends with its sessions
	r.Stop()
	r.Logs("msg=draining active=1 go_on=2 ")
	if s := r.Status(); s.Lane.Active != 1 || s.Lane.GoOn != 2 || s.Connections.Active != 2 {
		t.Errorf("%+v, %d connections", s.Lane, s.Connections.Active)
	}
	for name, change := range map[string]func() (admin.LaneChanged, error){
		"flush":  func() (admin.LaneChanged, error) { return r.FlushLane("test") },
		"return": func() (admin.LaneChanged, error) { return r.ReturnLane("test") },
		"on":     func() (admin.LaneChanged, error) { return r.SwitchLane(true, "test") },
		"off":    func() (admin.LaneChanged, error) { return r.SwitchLane(false, "test") },
	} {
		const want = "the process drains with lane.leave: sessions that have left user space (2) go on without this process: nothing is changed"
		if _, err := change(); !errors.Is(err, admin.ErrLeft) || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	echoes(t, here, "still here")
	_ = here.Close()
	if err := r.End(); err != nil {
		t.Error(err)
	}
	echoes(t, own, "without a process")
	echoes(t, adopted[0], "without a process")
}
