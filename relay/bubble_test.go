package relay_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/relay"
)

// TestBubble: in a bubble of testing/synctest the timeouts of a session follow the bubble's time.
func TestBubble(t *testing.T) {
	t.Parallel()

	const s = time.Second
	for name, c := range map[string]struct {
		limits relay.Limits
		ends   bool // the first side ends at the beginning, to which the second has no CloseWrite
		after  time.Duration
		reason relay.Reason
	}{
		"idle":       {limits: relay.Limits{IdleTimeout: 7 * s}, after: 7 * s, reason: relay.ReasonIdle},
		"lifetime":   {limits: relay.Limits{MaxLifetime: 7 * s}, after: 7 * s, reason: relay.ReasonLifetime},
		"first byte": {limits: relay.Limits{FirstByte: 7 * s}, after: 7 * s, reason: relay.ReasonFirstByte},
		"half-close": {ends: true, after: 5 * s, reason: relay.ReasonHalfClose},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				farA, a := net.Pipe()
				farB, b := net.Pipe()
				defer farA.Close()
				defer farB.Close()
				session := must.Get(relay.Default())(t).NewSession(a, b)
				session.Limit(&c.limits)
				if c.ends {
					farA.Close()
				}
				began := time.Now()
				res, _ := session.Run(context.Background())
				if took := time.Since(began); res.Reason != c.reason || took != c.after || res.Duration != c.after {
					t.Errorf("after %v: %+v", took, res)
				}
			})
		})
	}
}
