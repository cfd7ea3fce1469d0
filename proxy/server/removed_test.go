package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestRemovalIsNoRecovery: the removal of an endpoint that is down, ejected and behind an open
// breaker is not logged as a recovery.
func TestRemovalIsNoRecovery(t *testing.T) {
	t.Parallel()
	const text = `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [%s{address: %q, name: b, weight: 1, backup: true}]
    health_check: {interval: 100ms, timeout: 2s, fast_interval: 100ms, fall: 30}
    outlier_detection: {consecutive_failures: 1, max_ejected: 1, base_ejection_time: 1h, max_ejection_time: 1h}
    circuit_breaker: {min_volume: 1, failure_percentage: 1, open: 1h}
    queue: {hold: 0s}
    retry: {attempts: 0}`
	b := named(t, "b")
	r := start(t, fmt.Sprintf(text, fmt.Sprintf("{address: %q, name: a}, ", sockets.Refusing(t)), b))
	r.Until("the endpoint is ejected and down, and its breaker is open", func() bool {
		whose(t, r.At("l")) // as a last resort
		e := r.Endpoint("u", "a")
		return strings.Contains(r.Log.String(), "state=ejected") && e.Breaker == "open" && e.State == "down"
	})
	before := len(r.Log.String())
	r.Reload(fmt.Sprintf(text, "", b))
	if got := whose(t, r.At("l")); got != "b" {
		t.Error(got)
	}
	for line := range strings.Lines(r.Log.String()[before:]) {
		if strings.Contains(line, "u/a") && (strings.Contains(line, "succeed again") || strings.Contains(line, "healthy again") || strings.Contains(line, "has returned")) {
			t.Errorf("the endpoint was removed, and the log has %s", line)
		}
	}
}
