package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestOneAttemptIsNoOutage: two of three endpoints refuse connections, with retry: {attempts: 0}.
// No client is refused, because their clients get the third endpoint as a last resort. The
// upstream's breaker does not open.
func TestOneAttemptIsNoOutage(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, endpoints: [%q, %q, %q], retry: {attempts: 0}, health_check: off, outlier_detection: off}`, named(t, "good"), sockets.Refusing(t), sockets.Refusing(t)))
	for range 90 {
		if who := whose(t, r.At("l")); who != "good" {
			t.Fatalf("served by %q", who)
		}
	}
	r.Until("both breakers are open", func() bool {
		return strings.Count(r.Log.String(), "msg=circuit upstream=u endpoint=") == 2
	})
	if strings.Contains(r.Log.String(), "msg=circuit upstream=u state=open") {
		t.Error("the upstream's breaker has opened")
	}
}
