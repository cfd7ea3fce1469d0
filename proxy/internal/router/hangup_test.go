package router_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/relay"
)

// TestHangUps: an endpoint that ends a session before the client does, soon and without a byte,
// has failed, whatever happened to the client afterwards. It has not failed if the client left
// first, if it has sent a byte, or if it has waited for long.
func TestHangUps(t *testing.T) {
	hung := relay.Result{Reason: relay.ReasonEOF, First: relay.SideB, Duration: time.Second, AToB: relay.Flow{Reason: relay.ReasonEOF}, BToA: relay.Flow{Reason: relay.ReasonEOF}}
	for name, c := range map[string]struct {
		change   func(*relay.Result)
		failures int64
	}{
		"hung up":                    {func(*relay.Result) {}, 1},
		"after the client's request": {func(r *relay.Result) { r.AToB.Copied = 9 }, 1},
		"the client stays":           {func(r *relay.Result) { r.Reason, r.AToB.Reason = relay.ReasonHalfClose, relay.ReasonHalfClose }, 1},
		"the client resets":          {func(r *relay.Result) { r.Reason, r.Culprit = relay.ReasonReset, relay.SideA }, 1},
		"the client has left first":  {func(r *relay.Result) { r.First = relay.SideA }, 0},
		"after a byte":               {func(r *relay.Result) { r.BToA.Spliced = 1 }, 0},
		"after a minute":             {func(r *relay.Result) { r.Duration = time.Minute }, 0},
	} {
		r := newRig(t, 1, router.SnapshotConfig{}, nil)
		res := hung
		c.change(&res)
		r.serve().Ended(res, nil)
		if n := r.upstream.Counts().Failures; n != c.failures || r.active() != 0 {
			t.Errorf("%s: %d failures, %d active", name, n, r.active())
		}
	}
}
