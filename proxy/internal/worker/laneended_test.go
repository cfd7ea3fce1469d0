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
	for name, cameBack := range map[string]bool{"come back": true, "never left": false} {
		t.Run(name, func(t *testing.T) {
			e := new(tie)
			r := directed(t, straight(echo(t)).bound(e), func(c *worker.Config, _ *worker.Service) { c.Loops = 1 })
			r.serve(t)
			c := r.dial(t)
			talk(t, c)
			owners := r.Prepared(0, cameBack)
			if len(owners) != 1 {
				t.Fatalf("%d sessions", len(owners))
			}
			owners[0].Ended(lane.Result{Reset: true, Left: true, Err: os.ErrDeadlineExceeded})
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
