package worker_test

import (
	"errors"
	"os"
	"testing"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// TestEndedInUserSpace: a session that the lane ends just as it comes back, as by a user timeout, ends; one that has never left
// goes on.
func TestEndedInUserSpace(t *testing.T) {
	t.Parallel()

	for name, cameBack := range map[string]bool{"come back": true, "never left": false} {
		t.Run(name, func(t *testing.T) {
			e := new(tie)
			r := directed(t, straight(echo(t)).bound(e), func(c *worker.Config, _ *worker.Service) { c.Loops = 1 })
			r.serve(t)
			c := r.dial(t)
			talk(t, c)
			owner, sessions := r.Prepared(0, cameBack)
			if len(sessions) != 1 {
				t.Fatalf("%d sessions", len(sessions))
			}
			owner.Ended(sessions[0], lane.Result{Reset: true, Left: true, Err: os.ErrDeadlineExceeded})
			if !cameBack {
				r.Turn()
				talk(t, c)
				return
			}
			eventually(t, func() bool { return e.ended() == 1 && r.Summary().Active == 0 })
			if got := e.all()[0].Reason; got != relay.ReasonCanceled {
				t.Error(got)
			}
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the client still waits")
			}
		})
	}
}

// TestWithdrawnOverTurns: when no session is to leave user space any more, a loop withdraws those that it has prepared for that some in each turn, and
// none is offered meanwhile.
func TestWithdrawnOverTurns(t *testing.T) {
	t.Parallel()

	r := directed(t, straight(echo(t)), func(c *worker.Config, _ *worker.Service) { c.Loops = 1 })
	r.serve(t)
	r.Prepared(0, false) // none yet
	const sessions = 60_000
	restore, err := r.Simulate(0, nil, sessions)
	if err != nil {
		t.Fatal(err)
	}
	defer restore()
	if _, prepared := r.Prepared(0, false); len(prepared) != sessions {
		t.Fatalf("%d sessions are prepared", len(prepared))
	}
	left, offered := r.LeaveLaneAlone(0)
	if left == 0 {
		t.Error("all are withdrawn in one turn")
	}
	if offered {
		t.Error("one is offered that is not withdrawn yet")
	}
	eventually(t, func() bool {
		there := 0
		r.EachDeparted(0, func(lane.Observer, *lane.Session) { there++ })
		return there == 0
	})
	talk(t, r.dial(t))
}
