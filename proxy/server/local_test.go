package server_test

import (
	"strings"
	"testing"
)

// TestLocalFaults: some connections fail for a local reason, here the lack of the address to
// connect from. The log has their cause, it is the reason of the refusals, and it is reported as
// a problem. 192.0.2.1 is assigned to no host (RFC 5737).
func TestLocalFaults(t *testing.T) {
	t.Parallel()

	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: "127.0.0.1:9", name: a}], source_address: 192.0.2.1, queue: {hold: 0s}, health_check: off}]`)
	refused(t, r.At("l"))
	const cause = "cannot assign requested address"
	r.Logs("level=WARN", `msg="connections to endpoints failed for want of something on this machine"`, "upstream=u", `reasons="`+cause)
	r.Logs("level=WARN", `msg="clients refused"`, "upstream=u", `reasons="local 1"`)
	u := r.Status().Upstreams[0]
	if u.LocalFaults[cause] == 0 || u.Reasons["local"] != 1 || u.LastMinute.LocalFaults == 0 {
		t.Errorf("%+v", u)
	}
	if e := u.Endpoints[0]; e.State != "up" || e.LastFailure == nil || !strings.Contains(e.LastFailure.Cause, cause) {
		t.Errorf("%+v", e)
	}
}
